"""nsys's global ids, as numbers or arrays: bits 0 to 23 are the thread, 24 to 47 the process, higher bits the host."""

NUMBER_BITS = 24  # of the number of a thread or a process
NUMBER_MASK = (1 << NUMBER_BITS) - 1


def global_thread(process: int, thread: int) -> int:
    """The global id of a thread from the operating system's numbers; with thread 0, that of the process (globalPid)."""
    return process << NUMBER_BITS | thread & NUMBER_MASK


def process_of(global_thread):
    """The global id of the process of a global thread id."""
    return global_thread & ~NUMBER_MASK


def process_number(global_id):
    """The operating system's number of the process of a global process or thread id."""
    return global_id >> NUMBER_BITS & NUMBER_MASK


def thread_number(global_thread):
    """The operating system's number of the thread of a global thread id."""
    return global_thread & NUMBER_MASK
