"""(d) How training differs from inference."""
