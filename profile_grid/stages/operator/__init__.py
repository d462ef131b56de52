"""The stage of an operator alone: passes of it at every context length, in one process."""
