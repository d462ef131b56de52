"""What only the machine knows: a variant does not run here, or there is no energy counter. A result of the grid, not a
failure. No torch."""

import re

MAX_CHARACTERS = 400
_PATH = re.compile(r"(?<![\w:/])/(?:[\w.+@-]+/)+")


class Unsupported(Exception):
    """This machine lacks what a run needs; the message is its name and the reason, in one line and without paths."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {_publishable(reason)}")


def _publishable(text: str) -> str:
    """One line of limited length, with only the last name of every path: it is published with the tables."""
    line = _PATH.sub("", " ".join(text.split()))
    return line if len(line) <= MAX_CHARACTERS else f"{line[:MAX_CHARACTERS]} ..."
