"""How long steps took before the window and in it."""

from __future__ import annotations

import statistics
import time

NOTED_STEPS = 20  # the durations of so many steps before the window are kept


class StepClock:
    """The durations of steps before the window, and in it."""

    def __init__(self) -> None:
        self._last_s: float | None = None
        self._before_s: list[float] = []
        self._within_s: list[float] | None = None

    def tick(self) -> None:
        """A step has ended."""
        now_s = time.perf_counter()
        if self._last_s is not None:
            (self._before_s if self._within_s is None else self._within_s).append(now_s - self._last_s)
            del self._before_s[:-NOTED_STEPS]
        self._last_s = now_s

    def restart(self) -> None:
        """The window is open: what its opening took belongs to no step."""
        self._last_s, self._within_s = time.perf_counter(), []

    def facts(self) -> dict[str, float]:
        """The median of each, in seconds, where there is one."""
        medians = {"step_before_s": self._before_s, "step_within_s": self._within_s}
        return {name: statistics.median(durations) for name, durations in medians.items() if durations}
