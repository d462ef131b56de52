"""Hardware counters of Nsight Compute, joined to the launches of a capture: why a kernel is slow."""
