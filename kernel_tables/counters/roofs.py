"""The most that a GPU can do: bytes of its memory and FLOPs by kind, per second."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernel_tables.counters.metrics import KINDS


@dataclass(frozen=True)
class Roofs:
    """Rates that nothing exceeds; None for what is not known."""

    memory_bytes_per_s: float | None
    flop_per_s: Mapping[str, float | None]  # by kind of FLOPs

    def rate_of(self, kind: str) -> float:
        """The rate of a kind of FLOPs, NaN where it is not known."""
        return self.flop_per_s.get(kind) or float("nan")


UNKNOWN = Roofs(None, dict.fromkeys(KINDS))
