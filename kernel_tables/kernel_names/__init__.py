"""What a kernel's full name says, and a short name that a person can read."""
