"""The one exception that a reader of captures has to catch."""


class TraceError(Exception):
    """A capture cannot be read; the message is one line: the fact, the likely cause, the next step."""
