"""What each dimension of a run does to the measured program: the one place where a new dimension takes effect."""
