"""Small training loops, each with one fault planted, and their captures on a GPU: see __main__.py."""
