"""Training scripts as people write them, which know nothing of being recorded: for benchmarks/recording.py."""
