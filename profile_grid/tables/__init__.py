"""From captures to tables: of a run, of the grid, and behind each answer."""
