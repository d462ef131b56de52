"""The one way to say that something outside this project's code is bad."""


class OutsideError(Exception):
    """A file, the machine or the configuration is bad. The message is for people: fact, value, cause, next step."""
