"""What a kernel's full name says: its parts and what they mean, and a short name that a person can read."""
