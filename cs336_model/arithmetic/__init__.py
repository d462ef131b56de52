"""FLOPs, memory and communication of the model from its shapes alone. Imports no torch."""
