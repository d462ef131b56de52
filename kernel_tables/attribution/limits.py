"""Limits that no real program reaches, beyond which tables would take hours and all memory."""

DEEPEST_NESTING = 1_000
MOST_PAIRS = 30_000_000
MOST_TEXT_OF_A_TABLE = 400_000_000  # characters: some 2 GB while it is written
MOST_TEXT_OF_A_TIMELINE = 4_000_000_000  # on disk; no viewer opens half of it


class BeyondLimits(Exception):
    """The ranges cannot be tabulated in reasonable time and memory; the message is the fact and its likely cause."""


def require_depth(depth: int) -> None:
    """Raises BeyondLimits if `depth` ranges, open at once in one chain, are too many."""
    if depth > DEEPEST_NESTING:
        raise BeyondLimits(
            f"ranges are open {depth:,} deep, more than {DEEPEST_NESTING:,}: they are pushed and not popped; close each"
            " range that is opened"
        )


def require_pairs(count: int, what: str) -> None:
    """Raises BeyondLimits if there are too many pairs of a kind: `what`, in the plural."""
    if count > MOST_PAIRS:
        raise BeyondLimits(
            f"there are more than {MOST_PAIRS:,} {what}: ranges are opened and not closed; close each range that is"
            " opened, or capture less at a time"
        )


def require_text(characters: int, most: int) -> None:
    """Raises BeyondLimits if paths and names have more `characters` than `most`."""
    if characters > most:
        raise BeyondLimits(
            f"the paths of ranges and the names have {characters / 1e9:.1f} GB of text in all, more than"
            f" {most / 1e9:.1f}: names are long and ranges nest deep; keep a part with --under NAME"
        )
