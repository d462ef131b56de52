"""nsys's global ids: bits 0 to 23 are the thread, 24 to 47 the process, those above the host. Numbers or arrays."""

BITS = 24
MASK = (1 << BITS) - 1


def process_of(global_thread):
    """The global id of the process of a global thread id."""
    return global_thread & ~MASK


def process_number(global_id: int) -> int:
    """The operating system's number of the process of a global process or thread id."""
    return global_id >> BITS & MASK


def thread_number(global_thread: int) -> int:
    """The operating system's number of the thread of a global thread id."""
    return global_thread & MASK
