"""What a machine is asked for: leases of its GPUs, processes, and what they say while they run."""
