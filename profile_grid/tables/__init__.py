"""From captures to tables: of a run, of the grid, and of each answer."""
