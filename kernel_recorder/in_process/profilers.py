"""The two profilers of a window: PyTorch's own, and nsys around the program."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch.autograd.profiler import profile

from kernel_recorder.in_process.notes import trace_file
from kernel_recorder.in_process.ranks import Ranks
from kernel_tables.whole_files import written_whole


class TorchProfiler:
    """Records in this process; `save` leaves the trace, which the command makes a capture of."""

    def start(self) -> None:
        if torch.autograd._profiler_enabled():  # a second one would take the events of the first
            raise RuntimeError("the program is using PyTorch's profiler itself; record it by nsys, or without that")
        # The class below torch.profiler.profile: that one imports the compiler at its start, which takes seconds.
        self._recording = profile(use_device="cuda" if torch.cuda.is_available() else None, use_kineto=True)
        self._recording.__enter__()

    def stop(self, *, program_ended: bool = False) -> None:
        if not torch.autograd._profiler_enabled():
            raise RuntimeError(
                "the profiler has ended on this thread: the program used PyTorch's profiler itself inside the window,"
                " or the window closes on another thread than it opened on"
            )
        try:
            self._recording.__exit__(None, None, None)
        except Exception:
            # Where the GPU has failed, the first try to end it raises and leaves it on; a process that ends so gets a
            # SIGSEGV instead of its own status (PyTorch 2.11, a failed assertion of a kernel).
            if torch.autograd._profiler_enabled():
                torch.autograd._disable_profiler()
            raise

    def save(self, folder: Path) -> None:
        """Writes the trace into the folder, whole or not at all."""
        with written_whole(trace_file(folder, os.getpid())) as partial:
            self._recording.export_chrome_trace(str(partial))


class NsysProfiler:
    """Tells the nsys around this program where its capture range begins and ends, which is the same for all ranks."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks

    def start(self) -> None:
        self._ranks.together("start", torch.cuda.profiler.start)

    def stop(self, *, program_ended: bool) -> None:
        if not (program_ended and self._ranks.is_one):  # the others may be at work, and nsys ends with the last of them
            self._ranks.together("stop", torch.cuda.profiler.stop)

    def save(self, folder: Path) -> None:
        """Nothing: nsys writes its report when the program has ended."""
