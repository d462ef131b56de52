"""How time grows with size: power laws fitted to what was measured, and how sure their exponents are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

MINIMUM_POINTS = 2


@dataclass(frozen=True)
class PowerLaw:
    """y = scale * x ** exponent, fitted to so many points; `exponent_std` is None where two leave no residual."""

    exponent: float
    exponent_std: float | None
    scale: float
    points: int

    def at(self, x: np.ndarray) -> np.ndarray:
        """The fitted y."""
        return self.scale * np.asarray(x, dtype="float64") ** self.exponent

    def in_words(self) -> str:
        """The exponent as far as it is known: "1.02 ± 0.03 (4 points)"."""
        if self.exponent_std is None:
            return f"{self.exponent:.2f} ({self.points} points, spread unknown)"
        decimals = min(4, max(2, -math.floor(math.log10(self.exponent_std)))) if self.exponent_std > 0 else 4
        return f"{self.exponent:.{decimals}f} ± {self.exponent_std:.{decimals}f} ({self.points} points)"


def fitted_power_law(x: Sequence[float], y: Sequence[float]) -> PowerLaw | None:
    """The least-squares line through log y against log x, and its slope's standard error.

    Pairs that are not finite and positive are left out: they were not measured. None where fewer than two different
    x remain. The error comes from the residuals, so it tells how far the points are from a power law; it is no
    statement on sizes outside the measured ones.
    """
    x, y = np.asarray(x, dtype="float64"), np.asarray(y, dtype="float64")
    measured = np.isfinite(x) & np.isfinite(y) & (x > 0) & (y > 0)
    log_x, log_y = np.log(x[measured]), np.log(y[measured])
    if len(np.unique(log_x)) < MINIMUM_POINTS:
        return None
    from_mean = log_x - log_x.mean()
    spread = float(from_mean @ from_mean)
    exponent = float(from_mean @ log_y) / spread
    offset = float(log_y.mean() - exponent * log_x.mean())
    residual = log_y - offset - exponent * log_x
    free = len(log_x) - 2
    std = math.sqrt(float(residual @ residual) / free / spread) if free else None
    return PowerLaw(exponent, std, math.exp(offset), len(log_x))
