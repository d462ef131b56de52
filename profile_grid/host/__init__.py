"""What a machine provides: leases of its GPUs, processes, and their progress."""
