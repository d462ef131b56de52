"""Recording from within a script or a notebook: a context manager and a decorator."""

import os
import tempfile
from contextlib import ContextDecorator, ExitStack
from html import escape
from pathlib import Path
from typing import Any, Self

from kernel_tables.errors import TraceError
from kernel_tables.profile import Profile, read
from kernel_tables.record import keeping
from kernel_tables.record.handover import MODULES, NONE
from kernel_tables.text import notebook_html


class recorded(ContextDecorator):
    """Records a block or a function by PyTorch's profiler, with the range `name` around it:

        with kernel_tables.recorded("step") as recording:
            train_step()
        recording.profile().ranges()

        @kernel_tables.recorded("step", skip=5, steps=3, ranges="modules")
        def train_step(): ...

    The block runs `skip` times unrecorded; the next `steps` times are recorded in one capture; afterwards only the
    range is opened. Create the object once, before a loop. `ranges="modules"` gives ranges to the modules; a compiled
    model has one. `capture` is the file, once it is written (`output`, or recording.sqlite, or if that exists
    recording-2.sqlite and so on); `profile()` reads it.

    Raises TraceError if `output` exists or cannot be written, or the profiler recorded nothing; RuntimeError if
    PyTorch's profiler is running already. If a recorded block raises, there is no capture. In a program under
    `kernel-tables record`, the command leaves PyTorch's profiler to this object."""

    def __init__(
        self, name: str, *, skip: int = 0, steps: int = 1, output: str | os.PathLike | None = None, ranges: str = NONE
    ) -> None:
        if skip < 0 or steps < 1 or ranges not in (NONE, MODULES):
            raise ValueError("skip has to be at least 0, steps at least 1, and ranges 'modules' or 'none'")
        self.name, self.skip, self.steps = name, skip, steps
        self.capture: Path | None = None
        self._has_modules = ranges == MODULES
        self._requested_output = None if output is None else Path(output)
        self._times = 0  # how often a block was entered that is not inside another
        self._open_ranges: list = []  # of nested blocks
        self._profiler: Any = None  # while the window is open
        self._window = ExitStack()  # ends the window

    def __enter__(self) -> Self:
        from torch.autograd.profiler import record_function

        from kernel_tables.marks.marker import encoded

        if not self._open_ranges:
            self._times += 1
            if self._times == self.skip + 1:
                self._open_window()
        self._open_ranges.append(record_function(encoded(self.name)))
        self._open_ranges[-1].__enter__()
        return self

    def __exit__(self, error_type: type[BaseException] | None, *error: object) -> None:
        self._open_ranges.pop().__exit__(error_type, *error)
        if self._open_ranges or self._profiler is None:
            return
        if error_type or self._times == self.skip + self.steps:
            profiler, self._profiler = self._profiler, None
            self._window.close()
            if not error_type:
                self._keep(profiler)

    def __repr__(self) -> str:
        progress = f"ran {self._times} of {self.skip + self.steps} times"
        return f"<recorded {self.name!r}: {self.capture or progress}>"

    def _repr_html_(self) -> str:
        """The view in a notebook: where the time went, once it is recorded."""
        if self.capture is None:
            return escape(repr(self))
        with self.profile() as profile:
            return notebook_html(profile, self.name)

    def profile(self) -> Profile:
        """The capture, to read tables from. TraceError if none has been written."""
        if self.capture is None:
            raise TraceError(f"there is no capture yet: {self!r}")
        return read(self.capture)

    def _open_window(self) -> None:
        from kernel_tables.record.profilers import TorchProfiler
        from kernel_tables.record.ranges import AddedRanges
        from kernel_tables.record.recorder import wait_for_device

        self._output = keeping.free_output(self._requested_output)
        with ExitStack() as window:
            profiler = TorchProfiler()
            added = AddedRanges(has_modules=self._has_modules, has_steps=False, to_nvtx=False)
            wait_for_device()
            profiler.start()
            window.callback(profiler.stop)
            window.callback(added.end)
            window.callback(wait_for_device)
            added.begin()
            self._window, self._profiler = window.pop_all(), profiler

    def _keep(self, profiler: Any) -> None:
        with tempfile.TemporaryDirectory(prefix="kernel-tables-") as folder:
            profiler.save(Path(folder))
            recording = keeping.Recording(os.getpid(), by_nsys=False, torch_version=profiler.torch_version)
            (capture,) = keeping.write_captures(Path(folder), self._output, [recording])
        if isinstance(capture, TraceError):
            raise capture
        self.capture = capture
