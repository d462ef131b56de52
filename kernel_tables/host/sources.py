"""Where a capture's events of the host come from. Imports nothing heavy."""

SOURCES = CUDA, OS_RUNTIME, PYTHON, NATIVE = ("cuda", "osrt", "python", "sample")
SAMPLED = (False, False, True, True)  # by source: whether it is of moments, not of calls
UNKNOWN = "(unknown)"
