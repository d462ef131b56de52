"""Before measuring: what the machine can do, and how long the grid will take."""
