"""(h) Which attention is fastest at which length, and where memory ends."""
