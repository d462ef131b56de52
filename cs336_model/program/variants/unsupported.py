"""What only the machine can know: that a variant does not run here, or that nothing counts its energy. A result of the
grid, not a failure. No torch."""

import re

LONGEST = 400
_PATH = re.compile(r"(?<![\w:/])/(?:[\w.+@-]+/)+")


class Unsupported(Exception):
    """This machine lacks what a run needs; the message is what, and the reason of whoever refuses it, in one line and
    without paths."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"{what}: {_publishable(reason)}")


def _publishable(text: str) -> str:
    """One line, cut at its length, of every path its last name alone: this is published with the tables."""
    line = _PATH.sub("", " ".join(text.split()))
    return line if len(line) <= LONGEST else f"{line[:LONGEST]} ..."
