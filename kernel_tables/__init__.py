"""Kernel tables of GPU captures: what each range of a program launched, to the nanosecond."""
