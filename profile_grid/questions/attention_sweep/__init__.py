"""How fast attention alone is, by head size and context length."""
