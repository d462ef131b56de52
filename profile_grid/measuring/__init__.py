"""Running the measurements: processes, profilers, and what the machine can do."""
