"""What every run needs by the shapes, by component, and whether it fitted."""
