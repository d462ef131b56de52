"""How fast attention alone is, by width of head and context length."""
