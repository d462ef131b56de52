"""A student's own code, by the names of the handout's tests/adapters.py: what needs it, and whether it is right."""
