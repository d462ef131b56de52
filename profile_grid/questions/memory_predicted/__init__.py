"""The memory that every run needs by the shapes, by component, and whether the run fitted."""
