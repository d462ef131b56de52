"""The work of the host: its CUDA calls, calls of the operating system's runtime, and sampled stacks.

Imports nothing heavy.
"""

SOURCES = CUDA, OS_RUNTIME, PYTHON, NATIVE = ("cuda", "osrt", "python", "sample")  # of events
SAMPLED = (False, False, True, True)  # by source: whether its events are samples, else calls
UNKNOWN = "(unknown)"
