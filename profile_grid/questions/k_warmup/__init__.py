"""(k) How many warm-up steps are enough."""
