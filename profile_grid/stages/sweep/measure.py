"""The job of a row of the attention sweep."""

from profile_grid.measuring.sweep import swept as measure

__all__ = ["measure"]
