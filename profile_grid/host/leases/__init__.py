"""Leases: at most one measurement at a time on a GPU, in order of arrival."""
