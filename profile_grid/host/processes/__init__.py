"""Jobs and the processes that they run: the measured program, its ranks, and who ends them."""
