"""The measured program whose backward pass is not marked, for benchmarks/marked_captures.py: the same arguments."""

from cs336_model.program import benchmark
from range_marks import backward

if __name__ == "__main__":
    backward.follow_backward = lambda marker: None
    benchmark.main()
