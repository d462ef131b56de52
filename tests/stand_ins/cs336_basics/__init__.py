"""Stands for the course's package: written for the tests, of the same signatures and names of modules."""
