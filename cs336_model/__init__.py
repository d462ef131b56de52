"""The program that is measured: a Transformer, its training loop, and what is recorded of it."""
