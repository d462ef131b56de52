"""The largest value of a dimension with which a run fits into memory."""
