"""What no program does with its ranges, and what would take hours and all memory to tell."""

from __future__ import annotations

DEEPEST_NESTING = 1_000
MOST_PAIRS = 30_000_000


class BeyondLimits(Exception):
    """The ranges cannot be told apart in reasonable time; the message is the fact and its likely cause."""


def require_depth(depth: int) -> None:
    """Raises BeyondLimits where DEPTH ranges are open at once in one chain."""
    if depth > DEEPEST_NESTING:
        raise BeyondLimits(
            f"ranges are open {depth:,} deep, more than {DEEPEST_NESTING:,}: they are pushed and not popped; close each"
            " range that is opened"
        )


def require_pairs(count: int, what: str) -> None:
    """Raises BeyondLimits where there are too many pairs of a kind: WHAT, in the plural."""
    if count > MOST_PAIRS:
        raise BeyondLimits(
            f"there are more than {MOST_PAIRS:,} {what}: ranges are opened and not closed; close each range that is"
            " opened, or capture less at a time"
        )
