"""(c) What takes time besides matrix multiplies."""
