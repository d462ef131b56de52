"""The program that measures: one run of the grid in one process, from its specification to its result."""
