"""(b) Which kernel takes the most time."""
