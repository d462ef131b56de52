"""The page of a capture, and the parts of which it and the page of a grid are made."""
