"""From the grid in config.yaml to the tables, figures and documents that answer the profiling questions."""
