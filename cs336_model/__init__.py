"""The program under the profiler: a Transformer, its optimizer, and the loop that measures them."""
