"""Two results of one grid compared: whether a change made it faster, and what changed."""
