"""The two profilers of a window: PyTorch's own, and nsys around the program."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch.autograd import profiler as torch_profiler

from kernel_recorder.in_process.callbacks import with_callbacks
from kernel_recorder.in_process.handover import trace_file
from kernel_recorder.in_process.ranks import RankCoordinator
from kernel_tables.whole_files import written_whole

# Every profile of PyTorch calls these functions of torch.autograd.profiler.
START_FUNCTIONS, END_FUNCTION = ("_prepare_profiler", "_enable_profiler"), "_disable_profiler"


class TorchProfiler:
    """Records in this process; `save` writes the trace, which the command turns into a capture.

    A process has one profiler of PyTorch. The program has priority: `is_taken` is true from the preparation of its
    profile to the end.
    """

    can_start_again = True
    # Recorder.leave_profiler, if this process has a Recorder: what `kernel_tables.recorded` calls before it starts
    _leave_profiler: ClassVar[Callable[[], None]] = staticmethod(lambda: None)

    def __init__(self) -> None:
        self.is_taken = False
        self._is_switching = False  # this object starts or stops the profiler
        self._is_of_recorder = False  # else it is of `kernel_tables.recorded`, which the program uses itself
        self._profile: torch_profiler.profile  # since `start`

    def watch_program(self, leave_profiler: Callable[[], None]) -> None:
        """Calls `leave_profiler` before the program starts a profile itself."""

        def begins(*_: Any) -> None:
            if not self._is_switching:
                self.is_taken = True
                leave_profiler()

        def ends(*_: Any) -> None:
            if not self._is_switching:
                self.is_taken = False

        self._is_of_recorder, TorchProfiler._leave_profiler = True, staticmethod(leave_profiler)
        for name in START_FUNCTIONS:
            setattr(torch_profiler, name, with_callbacks(getattr(torch_profiler, name), before=begins))
        setattr(torch_profiler, END_FUNCTION, with_callbacks(getattr(torch_profiler, END_FUNCTION), after=ends))

    def start(self) -> None:
        if not self._is_of_recorder:
            self._leave_profiler()
        if torch.autograd._profiler_enabled():  # a second profiler would take the events of the first
            raise RuntimeError("the program is using PyTorch's profiler itself; record it by nsys, or without that")
        # The class below torch.profiler.profile: that one imports the compiler at its start, which takes seconds.
        use_device = "cuda" if torch.cuda.is_available() else None
        self._profile = torch_profiler.profile(use_device=use_device, use_kineto=True)
        with self._switching():
            self._profile.__enter__()

    def stop(self, *, program_ended: bool = False) -> None:
        if not torch.autograd._profiler_enabled():
            raise RuntimeError(
                "the profiler has ended on this thread: the window closes on another thread than it opened on, or the"
                " program ended the profiler"
            )
        try:
            with self._switching():
                self._profile.__exit__(None, None, None)
        except Exception:
            # Where the GPU has failed, the first try to end it raises and leaves it on; a process that ends so gets a
            # SIGSEGV instead of its own status (PyTorch 2.11, a failed assertion of a kernel).
            if torch.autograd._profiler_enabled():
                torch.autograd._disable_profiler()
            raise

    def save(self, folder: Path) -> None:
        """Writes the trace into the folder, whole or not at all. FileNotFoundError if the folder is gone."""
        with written_whole(trace_file(folder, os.getpid())) as partial:
            partial.touch()  # otherwise Kineto complains on standard error about a missing folder
            self._profile.export_chrome_trace(str(partial))

    @contextmanager
    def _switching(self) -> Iterator[None]:
        self._is_switching = True
        try:
            yield
        finally:
            self._is_switching = False


class NsysProfiler:
    """Tells the nsys around this program where its capture range begins and ends, which is the same for all ranks."""

    is_taken = False  # a profile by the program does not prevent it
    can_start_again = False  # it records one range of a program

    def __init__(self, ranks: RankCoordinator) -> None:
        self._ranks = ranks

    def watch_program(self, note: Callable[[], None]) -> None:
        """Calls `note` before the program starts a profile itself, from which nsys takes the records of the GPU."""
        for name in START_FUNCTIONS:
            setattr(torch_profiler, name, with_callbacks(getattr(torch_profiler, name), before=lambda *_: note()))

    def start(self) -> None:
        self._ranks.call_once("start", torch.cuda.profiler.start)

    def stop(self, *, program_ended: bool) -> None:
        # If one of several ranks ends, the others may be at work; nsys stops when the last of them ends.
        if not (program_ended and self._ranks.is_distributed):
            self._ranks.call_once("stop", torch.cuda.profiler.stop)

    def save(self, folder: Path) -> None:
        """Does nothing: nsys writes its report when the program has ended."""
