"""Results of the measurements: read, typed, and compared with what would be measured now."""
