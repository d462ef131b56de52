"""The two profilers of a window, PyTorch's own and nsys around the program; and the ranks whose window nsys shares."""

import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.distributed
from torch.autograd import profiler as torch_profiler

from kernel_tables.files import written_whole
from kernel_tables.record.handover import RANK_WAIT_S, Notes, trace_file


def with_callbacks(
    original: Callable[..., Any],
    *,
    before: Callable[..., object] = lambda *_: None,
    after: Callable[..., object] = lambda *_: None,
) -> Callable[..., Any]:
    """The function with `before` called first, and `after` once it has returned, both with its positional arguments."""

    @wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        before(*args)
        result = original(*args, **kwargs)
        after(*args)
        return result

    return wrapper


# Every profile of PyTorch calls these functions of torch.autograd.profiler.
START_FUNCTIONS, END_FUNCTION = ("_prepare_profiler", "_enable_profiler"), "_disable_profiler"


class TorchProfiler:
    """Records in this process; `save` writes the trace. A process has one profiler of PyTorch, and the program has
    priority: `is_taken` is true from the preparation of its profile to the end."""

    torch_version = torch.__version__
    # closes the window of the Recorder, if this process has one, before `kernel_tables.recorded` starts the profiler
    _leave_profiler: ClassVar[Callable[[], None]] = staticmethod(lambda: None)

    def __init__(self) -> None:
        self.is_taken = False
        self._is_switching = False  # this object starts or stops the profiler
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

        TorchProfiler._leave_profiler = staticmethod(leave_profiler)
        for name in START_FUNCTIONS:
            setattr(torch_profiler, name, with_callbacks(getattr(torch_profiler, name), before=begins))
        setattr(torch_profiler, END_FUNCTION, with_callbacks(getattr(torch_profiler, END_FUNCTION), after=ends))

    def start(self) -> None:
        self._leave_profiler()
        if torch.autograd._profiler_enabled():  # a second profiler would take the events of the first
            raise RuntimeError("the program is using PyTorch's profiler itself; record it by nsys, or without that")
        # The class below torch.profiler.profile: that one imports the compiler at its start, which takes seconds.
        use_device = "cuda" if torch.cuda.is_available() else None
        self._profile = torch_profiler.profile(use_device=use_device, use_kineto=True)
        with self._switching():
            self._profile.__enter__()

    def stop(self, *, at_exit: bool = False) -> None:
        if not torch.autograd._profiler_enabled():
            raise RuntimeError("the profiler has ended, or the window closes on another thread than it opened on")
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


class Ranks:
    """Knows whether this process is a rank, and lets ranks wait for each other. `run` is an id that the ranks share
    which joined each other by `init_process_group`; None before `find`, and without other ranks.

    nsys has one window for all processes of its session. If it opens while a rank is in the middle of a step, kernels
    of that step are lost. If it closes while a kernel of NCCL waits for another rank, nsys blocks the rank that closed
    it for 30 s (nsys 2025.3, two ranks). So ranks meet at both ends, by files in the folder of the notes.
    """

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self.run: str | None = None
        self._count = 1
        self._is_parents = False  # the group that this process has joined, since it was forked from a rank

    def find(self) -> None:
        """Notes this process's rank if it has joined others. Nothing is raised in the program."""
        if self._is_parents or not self._has_joined():
            return
        with suppress(Exception):
            if (count := torch.distributed.get_world_size()) > 1:
                store = torch.distributed.distributed_c10d._get_default_store()
                # in a store that all ranks share: every rank gets the first one's id
                self.run = store.compare_set("kernel_tables_run", "", uuid.uuid4().hex).decode()
                self._count = int(os.environ.get("LOCAL_WORLD_SIZE", count))  # of this machine
                self._notes.add("rank", run=self.run, number=torch.distributed.get_rank(), of=count)

    def forget(self) -> None:
        """In a process that was forked: it is no rank yet."""
        self.run, self._is_parents = None, self._has_joined()

    @staticmethod
    def _has_joined() -> bool:
        return torch.distributed.is_available() and torch.distributed.is_initialized()

    def call_once(self, point: str, call: Callable[[], Any]) -> None:
        """A barrier: when all ranks of this run have reached `point`, or after RANK_WAIT_S, one of them makes the call.
        All return once it is done. A process that is not a rank just calls."""
        if self.run is None:
            call()
            return
        folder = self._notes.folder
        (folder / f"{point}-{os.getpid()}").touch()
        self._wait(lambda: len([*folder.glob(f"{point}-[0-9]*")]) >= self._count, RANK_WAIT_S)
        if self._notes.claim(f"{point}-call"):
            try:
                call()
            finally:
                (folder / f"{point}-done").touch()
        else:
            self._wait((folder / f"{point}-done").exists, 60.0)
        time.sleep(0.1)  # in the other processes, the window opens up to 3 ms later (measured)

    @staticmethod
    def _wait(is_over: Callable[[], bool], limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        while not is_over() and time.monotonic() < deadline:
            time.sleep(0.002)


class NsysProfiler:
    """Tells the nsys around this program where its capture range begins and ends, which is the same for all ranks."""

    is_taken = False  # a profile by the program does not prevent it

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks

    def watch_program(self, note: Callable[[], None]) -> None:
        """Calls `note` before the program starts a profile itself, from which nsys takes the records of the GPU."""
        for name in START_FUNCTIONS:
            setattr(torch_profiler, name, with_callbacks(getattr(torch_profiler, name), before=lambda *_: note()))

    def start(self) -> None:
        self._ranks.call_once("start", torch.cuda.profiler.start)

    def stop(self, *, at_exit: bool) -> None:
        # If one of several ranks ends, the others may be at work; nsys stops when the last of them ends.
        if not (at_exit and self._ranks.run):
            self._ranks.call_once("stop", torch.cuda.profiler.stop)

    def save(self, folder: Path) -> None:
        """Does nothing: nsys writes its report when the program has ended."""
