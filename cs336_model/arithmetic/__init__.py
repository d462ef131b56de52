"""FLOPs and memory of the model from its shapes alone. Imports no torch."""
