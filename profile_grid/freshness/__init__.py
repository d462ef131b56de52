"""Whether what is on disk is what would be made now. Imports nothing heavy."""
