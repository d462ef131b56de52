"""From the history of a process's memory to its tables."""
