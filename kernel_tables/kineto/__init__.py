"""Captures of PyTorch's own profiler (Kineto): its trace, written into the tables of an nsys export."""
