"""Jobs and the processes that they run: the measured program, its ranks, and their supervisor."""
