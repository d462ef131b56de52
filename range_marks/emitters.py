"""Two kinds of ranges: push/pop ranges of NVTX, or record_function of PyTorch's profiler."""

import threading
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Emitter:
    """How a thread opens a range by its name, and closes the last one that it opened."""

    push: Callable[[str], object]
    pop: Callable[[], object]


def nvtx_emitter() -> Emitter:
    """Push/pop ranges in NVTX's default domain, which nsys records. ModuleNotFoundError without the package nvtx.

    They are lighter than nvtx.annotate, which creates attributes for every range."""
    try:
        import nvtx
    except ModuleNotFoundError as error:
        message = "ranges for nsys need the nvtx package, which is not installed: pip install nvtx"
        raise ModuleNotFoundError(message, name="nvtx") from error
    return Emitter(nvtx.push_range, nvtx.pop_range)


def record_function_emitter(written: Callable[[str], str] = str) -> Emitter:
    """Ranges of PyTorch's own profiler ("user_annotation" in its trace), by what `written` makes of their names."""
    from torch.autograd.profiler import record_function

    thread = _RecordFunctionStack()

    def push(name: str) -> None:
        opened = record_function(written(name))
        opened.__enter__()
        thread.opened.append(opened)

    def pop() -> None:
        thread.opened.pop().__exit__(None, None, None)

    return Emitter(push, pop)


class _RecordFunctionStack(threading.local):
    """The ranges that are open on the calling thread."""

    def __init__(self) -> None:
        self.opened: list = []
