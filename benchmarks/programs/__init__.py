"""Training scripts as people write them, without code for recording: for benchmarks/recorded_programs.py."""
