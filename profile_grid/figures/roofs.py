"""Axes of FLOP/s against FLOP per byte, and the lines of the roofs on them."""

from dataclasses import dataclass

import altair as alt
import pandas as pd

from profile_grid.figures.theme import SMALL, LogAxis


@dataclass(frozen=True)
class RoofAxes:
    """The axes of a chart: the column `flop_per_s` against FLOP per byte in the column `x_column`."""

    x: LogAxis
    y: LogAxis
    x_column: str
    x_title: str
    y_axis: alt.Axis

    @property
    def channels(self) -> dict:
        x = alt.X(f"{self.x_column}:Q", scale=self.x.scale, axis=self.x.axis(self.x_title))
        return {"x": x, "y": alt.Y("flop_per_s:Q", scale=self.y.scale, axis=self.y_axis)}

    def roof(self, flop_per_s: float, bytes_per_s: float, **style) -> alt.Chart:
        """The highest possible FLOP/s: a line that rises by `bytes_per_s` (only flat if infinite) to `flop_per_s`."""
        bend = min(max(flop_per_s / bytes_per_s, self.x.low), self.x.high)
        intensities = sorted({max(self.x.low, self.y.low / bytes_per_s), bend, self.x.high})
        rates = [min(flop_per_s, intensity * bytes_per_s) for intensity in intensities]
        rows = pd.DataFrame({self.x_column: intensities, "flop_per_s": rates})
        return alt.Chart(rows).mark_line(clip=True, **style).encode(**self.channels)

    def roof_label(self, text: str, flop_per_s: float, **style) -> alt.Chart:
        """A text at the right end of a roof of this height."""
        rows = pd.DataFrame({self.x_column: [self.x.high], "flop_per_s": [flop_per_s], "text": [text]})
        return alt.Chart(rows).mark_text(fontSize=SMALL, **style).encode(**self.channels, text="text:N")
