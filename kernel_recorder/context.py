"""Recording from within a script or a notebook: a context manager and a decorator."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_recorder import keeping, options
from kernel_recorder.in_process.handover import ALWAYS
from kernel_tables.errors import TraceError

if TYPE_CHECKING:
    from kernel_tables.trace import Trace


class recorded:
    """Records a block or a function by PyTorch's profiler, with the range `name` around it:

        with kernel_tables.recorded("step") as recording:
            train_step()
        recording.trace().ranges()

        @kernel_tables.recorded("step", skip=5, steps=3, ranges="modules")
        def train_step(): ...

    The first `skip` times are skipped, the next `steps` are recorded together; afterwards it only opens the range.
    Create it once, before a loop. `ranges="modules"` or `"modules:DEPTH"` gives ranges to the modules, also in what
    inductor compiles between the creation and the end of the window. `capture` is the file (`output` or
    recording.sqlite), once it is written; `trace()` reads it.

    Raises TraceError if `output` exists or the profiler recorded nothing, RuntimeError if PyTorch's profiler is running
    already; if the block raises, there is no capture. `kernel-tables record` leaves the profiler to it.
    """

    def __init__(
        self, name: str, *, skip: int = 0, steps: int = 1, output: str | os.PathLike | None = None, ranges: str = "none"
    ) -> None:
        if skip < 0 or steps < 1:
            raise ValueError("skip has to be at least 0, and steps at least 1")
        self.name, self.skip, self.steps = name, skip, steps
        self.capture: Path | None = None
        self._modules = options.modules_of(ranges)
        self._wanted = None if output is None else Path(output)
        self._output: Path | None = None
        self._seen = self._depth = 0
        self._window: Any = None
        self._ranges: list = []
        self._at_end = ExitStack()
        if self._modules[0] == ALWAYS:
            from kernel_recorder.in_process.compiled_ranges import FollowedModules

            self._at_end.callback(FollowedModules(in_torch_profile=True).close)

    def __enter__(self) -> recorded:
        from kernel_recorder.in_process.assembly import BlockWindow, named_range

        self._depth += 1
        if self._depth == 1:
            self._seen += 1
            if self._seen == self.skip + 1:
                modules, depth = self._modules
                with self._at_end.pop_all() as at_end:  # it stays open if nothing raises
                    self._output = keeping.free_output(self._wanted, of_ranks=False)
                    self._window = BlockWindow(with_modules=modules == ALWAYS, depth=depth)
                    self._at_end = at_end.pop_all()
        self._ranges.append(named_range(self.name))
        self._ranges[-1].__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self._ranges.pop().__exit__(kind, *error)
        self._depth -= 1
        if self._depth == 0 and self._window is not None and (kind or self._seen == self.skip + self.steps):
            window, self._window = self._window, None
            self._close(window, keep=kind is None)

    def __call__(self, function: Callable) -> Callable:
        @wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return called

    def __repr__(self) -> str:
        status = self.capture or f"ran {self._seen} of {self.skip + self.steps} times"
        return f"<recorded {self.name!r}: {status}>"

    def _repr_html_(self) -> str:
        """The view in a notebook: where the time went, once it is recorded."""
        if self.capture is None:
            return escape(repr(self))
        from kernel_tables.terminal.findings import notebook_html

        with self.trace() as trace:
            return notebook_html(trace, self.name)

    def trace(self) -> Trace:
        """The capture, to read tables from. TraceError if none has been written."""
        from kernel_tables.trace import Trace

        if self.capture is None:
            raise TraceError(
                f"{self.name!r} is not recorded yet: it ran {self._seen} of {self.skip + self.steps} times"
            )
        return Trace(self.capture)

    def _close(self, window: Any, *, keep: bool) -> None:
        with self._at_end:
            window.close()
        if keep:
            with tempfile.TemporaryDirectory(prefix="kernel-tables-") as folder:
                window.save(Path(folder))
                own = keeping.RecordedProcess(os.getpid(), by_nsys=False, torch_version=window.torch_version)
                (kept,) = keeping.keep_recordings(Path(folder), self._output, [own], of_ranks=False)
                if isinstance(kept, TraceError):
                    raise kept
                self.capture = kept
