"""Runs any program under a profiler: `in_process` is what runs in its processes, the rest is the command around it."""
