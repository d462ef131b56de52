"""Runs any program under a profiler: handover, profilers, ranges, recorder, steps and injected/ run inside it."""
