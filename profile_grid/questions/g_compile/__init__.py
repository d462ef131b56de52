"""(g) What torch.compile gains, what it fuses, and what it costs to compile."""
