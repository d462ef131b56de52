"""When communication takes longer than computation, by the cost of a ring, and what buckets cost."""
