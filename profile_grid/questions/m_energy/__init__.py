"""(m) What a token costs in energy, and what the GPU burns while it waits."""
