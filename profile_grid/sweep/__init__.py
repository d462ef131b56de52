"""The attention sweep: its table, its document and its figure, from the results of its rows."""
