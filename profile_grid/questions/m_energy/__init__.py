"""(m) What a token costs in energy, and what idle waiting costs."""
