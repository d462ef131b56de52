"""What the host did: its CUDA calls, calls of the operating system's runtime, and sampled stacks."""
