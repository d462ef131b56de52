"""What tables and sentences say of where the activities of a capture ran: on a GPU, or on the processor."""

from __future__ import annotations

OF_PROCESSOR = "no GPU was used: a kernel is an outermost operator of PyTorch, and its time that of the processor"


def time_heading(is_of_processor: bool) -> str:
    """The name of the time of activities."""
    return "operators' time" if is_of_processor else "GPU time"


def place(is_of_processor: bool) -> str:
    """Where the activities ran."""
    return "on the processor" if is_of_processor else "on the device"
