"""(m) What a token costs in energy, and what an idle GPU costs."""
