"""From the counters of a process, and the capture of the same run, to their tables."""
