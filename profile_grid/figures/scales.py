"""Scales and axes that the figures share: logarithmic ones with plain numbers, context lengths, and series."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import altair as alt

from profile_grid.figures.theme import WIDTH, series_styles

NUMBER = "abs(datum.value) >= 1e4 ? format(datum.value, '~s') : format(datum.value, '~g')"  # 0.05, 20, 3000, 40M
FEWEST_TICKS = 3
TENTHS = (1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.7, 2, 2.5, 3, 4, 5, 6, 7, 8, 9)
TICK_DIGITS = ((1,), (1, 2, 5), (1, 1.5, 2, 3, 5, 7), TENTHS)  # of each decade, the first that give enough ticks
CONTEXT_MARGIN = 1.45
CHARACTER_PX, SYMBOL_PX = 6, 32


@dataclass(frozen=True)
class Log:
    """A logarithmic axis from `low` to `high`, of a length in pixels."""

    low: float
    high: float
    length_px: int

    @classmethod
    def around(cls, values: Iterable[float], length_px: int, margin: float = 1.3) -> "Log":
        """The axis that holds the positive ones of these values, with a margin at both ends."""
        present = [float(value) for value in values if value > 0 and math.isfinite(value)] or [1.0]
        return cls(min(present) / margin, max(present) * margin, length_px)

    def with_room(self, below_px: float = 0, above_px: float = 0) -> "Log":
        """The same axis with this many pixels more at its ends, for marks that are no values."""
        per_px = math.log(self.high / self.low) / max(self.length_px - below_px - above_px, 1)
        return Log(self.low * math.exp(-below_px * per_px), self.high * math.exp(above_px * per_px), self.length_px)

    def at_px(self, pixels: float) -> float:
        """The value at this many pixels from the low end."""
        return self.low * (self.high / self.low) ** (pixels / self.length_px)

    @property
    def scale(self) -> alt.Scale:
        return alt.Scale(type="log", domain=[self.low, self.high], nice=False)

    @property
    def ticks(self) -> list[float]:
        """Powers of ten, and round numbers between them where the axis holds few."""
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        ticks = []
        for digits in TICK_DIGITS:
            every = [digit * 10.0**decade for decade in decades for digit in digits]
            ticks = [tick for tick in every if self.low <= tick <= self.high]
            if len(ticks) >= FEWEST_TICKS:
                break
        return ticks

    def axis(self, title: str | None) -> alt.Axis:
        """Its axis, with plain numbers instead of powers."""
        return alt.Axis(title=title, values=self.ticks, labelExpr=NUMBER)


@dataclass(frozen=True)
class Contexts:
    """A logarithmic axis of context lengths, with a tick at every length that is there."""

    lengths: tuple[int, ...]

    @classmethod
    def of(cls, lengths: Iterable[int]) -> "Contexts":
        return cls(tuple(sorted({int(length) for length in lengths})))

    @property
    def low(self) -> float:
        """The left end of the axis."""
        return self.lengths[0] / CONTEXT_MARGIN

    @property
    def scale(self) -> alt.Scale:
        domain = [self.low, self.lengths[-1] * CONTEXT_MARGIN]
        return alt.Scale(type="log", base=2, domain=domain, nice=False)

    def axis(self, title: str | None = "context length (tokens)") -> alt.Axis:
        return alt.Axis(title=title, values=list(self.lengths), format="d")

    def x(self, field: str = "context_length", title: str | None = "context length (tokens)") -> alt.X:
        """The channel of a column of context lengths."""
        return alt.X(f"{field}:Q", scale=self.scale, axis=self.axis(title))

    def is_right(self, length: int) -> bool:
        """Whether a length is in the right half of the axis: its label goes to the left."""
        return length * length > self.lengths[0] * self.lengths[-1]


@dataclass(frozen=True)
class Series:
    """Several series, each with a colour and a shape; `column` holds their names. Where the fill of markers means
    something else, the legend shows them `hollow`."""

    column: str
    names: tuple[str, ...]
    in_legend: bool = True
    hollow: bool = False

    def color(self) -> alt.Color:
        """The channel of colour: of lines, of filled markers, and of the outline of hollow ones."""
        return alt.Color(f"{self.column}:N", scale=self._scale(0), legend=self._legend)

    def shape(self) -> alt.Shape:
        """The channel of the shape of markers."""
        return alt.Shape(f"{self.column}:N", scale=self._scale(1), legend=self._legend)

    def dash(self) -> alt.StrokeDash:
        """The channel of dashes, which distinguish lines where colours repeat."""
        return alt.StrokeDash(f"{self.column}:N", scale=self._scale(2), legend=self._legend)

    @property
    def _legend(self) -> alt.Legend | None:
        fill = {"symbolFillColor": "transparent"} if self.hollow else {}
        return legend(self.names, **fill) if self.in_legend else None

    def _scale(self, style: int) -> alt.Scale:
        return alt.Scale(domain=list(self.names), range=series_styles(self.names)[style])


def legend(names: Sequence[str], **options) -> alt.Legend:
    """A legend below the figure, in as many columns as fit into its width."""
    widths = [len(name) * CHARACTER_PX + SYMBOL_PX for name in names]
    fitting = (n for n in range(len(names), 1, -1) if sum(max(widths[i::n]) for i in range(n)) <= WIDTH)
    return alt.Legend(columns=next(fitting, 1), **options)
