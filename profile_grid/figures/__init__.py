"""What the figures share: their look, scales, marks and layout. The questions define them, each once."""
