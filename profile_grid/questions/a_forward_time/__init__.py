"""(a) How long the forward pass takes, and whether the profiler agrees."""
