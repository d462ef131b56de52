"""The two profilers of a window: PyTorch's own, and nsys around the program."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch.autograd import profiler as torch_profiler

from kernel_recorder.in_process.handover import trace_file
from kernel_recorder.in_process.heard_calls import heard
from kernel_recorder.in_process.ranks import Ranks
from kernel_tables.whole_files import written_whole

# Every profile of PyTorch calls these.
BEGINNING, ENDING = ("_prepare_profiler", "_enable_profiler"), "_disable_profiler"


class TorchProfiler:
    """Records in this process; `save` leaves the trace, which the command makes a capture of.

    A process has one profiler of PyTorch. If the program wants it, it gets it: `is_taken` is true from the preparation
    of its profile to the end.
    """

    can_start_again = True
    _step_back: ClassVar[Callable[[], None]] = staticmethod(lambda: None)  # of the recorder of this process

    def __init__(self) -> None:
        self.is_taken = False
        self._is_at_work = False
        self._is_of_recorder = False

    def watch_program(self, step_back: Callable[[], None]) -> None:
        """Calls `step_back` before the program starts a profile itself."""

        def begins(*_: Any) -> None:
            if not self._is_at_work:
                self.is_taken = True
                step_back()

        def ends(*_: Any) -> None:
            self.is_taken = self.is_taken and self._is_at_work

        self._is_of_recorder, TorchProfiler._step_back = True, staticmethod(step_back)
        for name in BEGINNING:
            setattr(torch_profiler, name, heard(getattr(torch_profiler, name), before=begins))
        setattr(torch_profiler, ENDING, heard(getattr(torch_profiler, ENDING), after=ends))

    def start(self) -> None:
        if not self._is_of_recorder:  # it belongs to a program that records itself
            self._step_back()
        if torch.autograd._profiler_enabled():  # a second profiler would take the events of the first
            raise RuntimeError("the program is using PyTorch's profiler itself; record it by nsys, or without that")
        # The class below torch.profiler.profile: that one imports the compiler at its start, which takes seconds.
        use_device = "cuda" if torch.cuda.is_available() else None
        self._recording = torch_profiler.profile(use_device=use_device, use_kineto=True)
        with self._at_work():
            self._recording.__enter__()

    def stop(self, *, program_ended: bool = False) -> None:
        if not torch.autograd._profiler_enabled():
            raise RuntimeError(
                "the profiler has ended on this thread: the window closes on another thread than it opened on, or the"
                " program ended the profiler"
            )
        try:
            with self._at_work():
                self._recording.__exit__(None, None, None)
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
            self._recording.export_chrome_trace(str(partial))

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        self._is_at_work = True
        try:
            yield
        finally:
            self._is_at_work = False


class NsysProfiler:
    """Tells the nsys around this program where its capture range begins and ends, which is the same for all ranks."""

    is_taken = can_start_again = False  # it records one range of a program

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks

    def watch_program(self, note: Callable[[], None]) -> None:
        """Calls `note` before the program starts a profile itself, from which nsys takes the records of the GPU."""
        for name in BEGINNING:
            setattr(torch_profiler, name, heard(getattr(torch_profiler, name), before=lambda *_: note()))

    def start(self) -> None:
        self._ranks.together("start", torch.cuda.profiler.start)

    def stop(self, *, program_ended: bool) -> None:
        if not (program_ended and self._ranks.is_one):  # the others may be at work, and nsys ends with the last of them
            self._ranks.together("stop", torch.cuda.profiler.stop)

    def save(self, folder: Path) -> None:
        """Nothing: nsys writes its report when the program has ended."""
