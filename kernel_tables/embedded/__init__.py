"""The embedded profiler: PyTorch's own, written into the tables of an nsys export."""
