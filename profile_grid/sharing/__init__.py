"""Results packed for somebody else, and read back."""
