"""From the full name of a kernel to its class."""
