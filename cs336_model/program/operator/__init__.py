"""One attention operator alone: a run of it, measured in one process."""
