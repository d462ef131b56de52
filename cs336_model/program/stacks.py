"""Where a process stands that hangs: the stack of each of its threads, printed before its time limit ends it."""

import faulthandler

BEFORE_LIMIT_S = 5.0


def print_stacks_before(time_limit_s: float | None, elapsed_s: float) -> None:
    """Prints them some seconds before the limit, where there is one, counted from `elapsed_s` ago. Python needs no lock
    for that: a thread that waits inside a library, such as NCCL, is shown too."""
    if time_limit_s is not None:
        early = min(BEFORE_LIMIT_S, time_limit_s / 4)
        faulthandler.dump_traceback_later(max(time_limit_s - early - elapsed_s, 0.1))
