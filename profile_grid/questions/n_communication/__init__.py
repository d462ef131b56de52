"""(n) What communication between the GPUs of a run costs."""
