"""The result of a process that cannot write one, because a student's code hangs or crashes it.

While such code runs, a draft of the result is in the place of the result. Whoever started the process turns it into a
result with the status `failed` (profile_grid.host.processes.measured_program).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from cs336_model.program.adapters.checking import calling
from cs336_model.program.adapters.names import student_implementations
from cs336_model.program.operator.spec import RowSpec
from cs336_model.program.process import Progress, exit_after
from cs336_model.program.result import Result, write_result
from cs336_model.program.spec import RunSpec
from cs336_model.program.targets import one_line_error
from cs336_model.program.without_times import FAILED, UNFINISHED, publishable

WHILE_CHECKED, WHILE_MEASURED = "while it was checked", "while it was measured"
SHARE_OF_CHECKS = 0.25  # of the time limit of the process
CUDA_ERROR = "CUDA error"  # in the messages of errors after which a process cannot use the GPU


class Draft:
    """The draft of a result. Its methods do nothing for a run without a student's code."""

    def __init__(
        self, spec: RunSpec | RowSpec, path: Path, record: Callable[[], Result], limit_s: float | None
    ) -> None:
        self.student = student_implementations(spec.dimensions)  # "" without a student's code
        self._modules = list(dict.fromkeys(target.partition(":")[0] for target in spec.adapters.values()))
        self._path, self._record, self._limit_s = path, record, limit_s

    def write(self, what: str, status: str = UNFINISHED) -> None:
        """Writes the draft, with what the code is doing, or what it raised."""
        if self.student:
            reason = f"{self.student}: {publishable(what)}"
            write_result(self._record() | {"status": status, "reason": reason}, self._path)

    @contextmanager
    def checking(self, progress: Progress) -> Iterator[None]:
        """A with block for the checks: the process ends if they last longer than a quarter of its time limit. The code
        is imported first, so that the draft says what was loaded. Raises Failed if it cannot be imported."""
        if not self.student:
            yield
            return
        with progress.stage("checks"):
            for module in self._modules:
                with calling(self.student):
                    import_module(module)
            self.write(WHILE_CHECKED)
            with exit_after(None if self._limit_s is None else self._limit_s * SHARE_OF_CHECKS):
                yield
        self.write(WHILE_MEASURED)


@contextmanager
def open_draft(
    spec: RunSpec | RowSpec, path: Path | None, record: Callable[[], Result], time_limit_s: float | None
) -> Iterator[Draft]:
    """A with block with the draft of a run; `record()` returns a result with every key and what is known by now. An
    exception that leaves the block removes the draft, so that there is no result; but if the exception says that the
    GPU can no longer be used, the draft becomes a failed result."""
    draft = Draft(spec, path, record, time_limit_s)
    try:
        yield draft
    except BaseException as error:
        if draft.student and CUDA_ERROR in str(error):
            draft.write(f"raised {one_line_error(error)}", FAILED)
        elif draft.student:
            path.unlink(missing_ok=True)
        raise
