"""(f) What lower precision gains in time, and what it costs in accuracy."""
