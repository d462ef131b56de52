"""Small faults that the tests have to find: `python -m tests.mutants` plants each of mutants.toml and runs its test."""
