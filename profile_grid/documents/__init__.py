"""The documents in Markdown, LaTeX and Typst: they know the questions by the catalogue only."""
