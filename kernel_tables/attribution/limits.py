"""Limits that no real program reaches, beyond which tables would take hours and all memory."""

MAX_DEPTH = 1_000
MAX_PAIRS = 30_000_000
MAX_TABLE_CHARACTERS = 400_000_000  # take some 2 GB while a table is written
MAX_TIMELINE_CHARACTERS = 4_000_000_000  # no viewer opens a file of half that size


class BeyondLimits(Exception):
    """The ranges cannot be tabulated in reasonable time and memory; the message is the fact and its likely cause."""


def require_depth(depth: int) -> None:
    """Raises BeyondLimits if `depth` ranges are too many to be open at once, one inside the other."""
    if depth > MAX_DEPTH:
        raise BeyondLimits(
            f"ranges are open {depth:,} deep, more than {MAX_DEPTH:,}: they are pushed and not popped; close each"
            " range that is opened"
        )


def require_pairs(count: int, what: str) -> None:
    """Raises BeyondLimits if there are too many pairs of a kind; `what` is the kind in words, in the plural."""
    if count > MAX_PAIRS:
        raise BeyondLimits(
            f"there are more than {MAX_PAIRS:,} {what}: ranges are opened and not closed; close each range that is"
            " opened, or capture less at a time"
        )


def require_text(characters: int, limit: int) -> None:
    """Raises BeyondLimits if paths and names have more `characters` than the `limit`."""
    if characters > limit:
        raise BeyondLimits(
            f"the paths of ranges and the names have {characters / 1e9:.1f} GB of text in all, more than"
            f" {limit / 1e9:.1f}: names are long and ranges nest deep; keep a part with --under NAME"
        )
