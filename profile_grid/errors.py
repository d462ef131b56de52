"""The error for whatever is wrong outside this project's code."""


class OutsideError(Exception):
    """A file, the machine or the configuration is wrong. The message is for people: fact, value, cause, next step."""
