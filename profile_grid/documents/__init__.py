"""The documents in Markdown: they know the questions by the catalogue only."""
