"""A fuzzer of kernel_tables: damaged captures, every command on each, and what has to hold of what they do."""
