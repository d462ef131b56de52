"""One attention operator alone: a row of the attention sweep, measured in one process."""
