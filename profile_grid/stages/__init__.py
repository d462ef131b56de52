"""The stages of a run, each in a folder: its declaration, what measures it, its tables."""
