"""How the time of a step grows with the number of parameters and with the context."""
