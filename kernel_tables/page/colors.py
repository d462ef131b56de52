"""Colours for the colour-blind (Okabe & Ito, Color Universal Design, 2008), and lines that show in grey print."""

from collections.abc import Iterable

ORANGE, SKY, GREEN, YELLOW, BLUE, VERMILLION, PURPLE = (
    "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7",
)  # fmt: skip
GREY, PALE = "#8c8c8c", "#d9d9d9"
# The look of a bar is its colour, and the number of lines along it.
FAMILIES = {  # the looks of families of kernel classes, in stacking order
    "gemm": (BLUE, 0),
    "attention": (SKY, 1),
    "softmax": (VERMILLION, 2),
    "normalization": (GREEN, 1),
    "elementwise": (ORANGE, 0),
    "reduction": (YELLOW, 0),
    "optimizer": (PURPLE, 1),
    "embedding": (GREEN, 2),
    "random": (SKY, 2),
    "sort": (BLUE, 2),
    "communication": (VERMILLION, 1),
    "triton-fused": (ORANGE, 2),
    "graph": (PURPLE, 2),
    "memcpy": (GREY, 0),
    "memset": (GREY, 2),
    "other": (PALE, 0),
    "unknown": (PALE, 2),
}
PHASES = {
    "forward": (BLUE, 0),
    "loss": (YELLOW, 0),
    "backward": (VERMILLION, 2),
    "optimizer": FAMILIES["optimizer"],
}
PLAIN = (GREY, 0)  # the look of API calls, and of ranges that are not phases
DARK = (BLUE, VERMILLION, GREEN)  # text on these is white
# By number of lines: from where to where each lies, as shares of a bar's height. The middle is free for text.
LINES = {0: (), 1: ((0.73, 0.84),), 2: ((0.16, 0.27), (0.73, 0.84))}
LOOKS = tuple(dict.fromkeys((PLAIN, *PHASES.values(), *FAMILIES.values())))  # all different looks; pages have indices


def family_look(family: str) -> int:
    """The index in LOOKS of a family of kernel classes; of an unlisted family, that of "unknown"."""
    return LOOKS.index(FAMILIES.get(family, FAMILIES["unknown"]))


def phase_look(phase: str) -> int:
    """The index in LOOKS of a phase, such as "optimizer (AdamW)"; of a range that is no phase, that of PLAIN."""
    return LOOKS.index(PHASES.get(phase.partition(" (")[0], PLAIN))


def background(look: int) -> str:
    """The CSS background of this look: its colour, and lines in the colour of the page."""
    color, lines = LOOKS[look]
    stops = [
        f"transparent {low:.0%}, var(--ground) {low:.0%} {high:.0%}, transparent {high:.0%}"
        for low, high in LINES[lines]
    ]
    return f"linear-gradient({', '.join(stops)}) {color}" if stops else color


def looks() -> list[dict]:
    """The LOOKS for scripts, in order. `dark` says that text on this look is white."""
    return [
        {"color": color, "lines": LINES[lines], "dark": color in DARK, "background": background(number)}
        for number, (color, lines) in enumerate(LOOKS)
    ]


def phase_rank(phase: str) -> int:
    """The position of a phase in a step; unlisted phases come last."""
    name = phase.partition(" (")[0]
    return list(PHASES).index(name) if name in PHASES else len(PHASES)


def in_stacking_order(families: Iterable[str]) -> tuple[str, ...]:
    """The families in the order of FAMILIES; unlisted ones come last, by name."""
    ranks = {name: rank for rank, name in enumerate(FAMILIES)}
    return tuple(sorted(families, key=lambda name: (ranks.get(name, len(ranks)), name)))
