"""Where time is lost, by the rules of the diagnosis, and what the remedies that the grid holds gained."""
