"""Colours that the colour-blind and a grey printer tell apart: Okabe & Ito, Color Universal Design (2008)."""

from __future__ import annotations

BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, VERMILLION, PURPLE = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7",
)  # fmt: skip
GREY, PALE = "#8c8c8c", "#d9d9d9"
FAMILIES = {  # of kernel classes, in the order in which they are stacked: colour, and lines along the bar
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
DARK = (BLUE, VERMILLION, GREEN)  # as a ground: text on it is white


def family_color(family: str) -> str:
    """The colour of a family of kernel classes; one that has none of its own looks like "unknown"."""
    return FAMILIES.get(family, FAMILIES["unknown"])[0]


def phase_color(phase: str) -> str:
    """The colour of a phase of a training step; grey for any other range."""
    return PHASES.get(phase, (GREY, 0))[0]


def phase_rank(phase: str) -> int:
    """The place of a phase in a step; phases of other programs come last."""
    return list(PHASES).index(phase) if phase in PHASES else len(PHASES)
