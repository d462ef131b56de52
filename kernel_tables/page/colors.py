"""Colours that the colour-blind and a grey printer tell apart: Okabe & Ito, Color Universal Design (2008)."""

from __future__ import annotations

ORANGE, SKY, GREEN, YELLOW, BLUE, VERMILLION, PURPLE = (
    "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7",
)  # fmt: skip
GREY, PALE = "#8c8c8c", "#d9d9d9"
FAMILIES = {  # of kernel classes, in the order in which they are stacked: colour, and how many lines along the bar
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
PHASES = {"forward": (BLUE, 0), "loss": (YELLOW, 0), "backward": (VERMILLION, 2), "optimizer": (GREEN, 1)}
PLAIN = (GREY, 0)  # ranges that are no phase, API calls
DARK = (BLUE, VERMILLION, GREEN)  # as a ground: text on it is white
LINES = {0: (), 1: ((0.73, 0.84),), 2: ((0.16, 0.27), (0.73, 0.84))}  # of a bar's height: a text in its middle is clear
LOOKS = tuple(dict.fromkeys((PLAIN, *PHASES.values(), *FAMILIES.values())))  # bars in a page hold numbers of them


def family_look(family: str) -> int:
    """The look of a family of kernel classes, in LOOKS; one that has none of its own looks like "unknown"."""
    return LOOKS.index(FAMILIES.get(family, FAMILIES["unknown"]))


def phase_look(phase: str) -> int:
    """The look of a phase, such as "optimizer (AdamW)", in LOOKS; of any other range the plain one."""
    return LOOKS.index(PHASES.get(phase.partition(" (")[0], PLAIN))


def background(look: int) -> str:
    """The CSS of a ground of this look: its colour, and lines in that of the page."""
    color, lines = LOOKS[look]
    stops = [
        f"transparent {low:.0%}, var(--ground) {low:.0%} {high:.0%}, transparent {high:.0%}"
        for low, high in LINES[lines]
    ]
    return f"linear-gradient({', '.join(stops)}) {color}" if stops else color


def looks() -> list[dict]:
    """What scripts draw bars with: of each of LOOKS its colour, its lines, whether text on it is white, its CSS."""
    return [
        {"color": color, "lines": LINES[lines], "dark": color in DARK, "background": background(number)}
        for number, (color, lines) in enumerate(LOOKS)
    ]


def phase_rank(phase: str) -> int:
    """The place of a phase in a step; phases of other programs come last."""
    kind = phase.partition(" (")[0]
    return list(PHASES).index(kind) if kind in PHASES else len(PHASES)
