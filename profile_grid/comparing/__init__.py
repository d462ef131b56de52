"""Two results of one grid side by side: whether a change made it faster, and what changed."""
