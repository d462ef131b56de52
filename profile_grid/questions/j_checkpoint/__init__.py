"""(j) What activation checkpointing trades: memory for time."""
