"""What a capture says, in sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from kernel_tables.diagnosis.scope import NO_STEP, Scope
from kernel_tables.kernel_classes.categories import family
from kernel_tables.page.step import Leaf, Picture
from kernel_tables.units import CPU_ONLY_NOTE, device_phrase, duration, percent

MOST_CLASSES = 3


def sentences(scope: Scope, picture: Picture, leaves: Sequence[Leaf], short: Mapping[str, str]) -> list[str]:
    """How long a step takes, where its time goes, the kernel and the classes with the most, what moves memory."""
    if not leaves:
        return ["No kernel and no memory operation was recorded in what is looked at."]
    return [
        *_on_cpu(scope),
        _steps(scope),
        *_busy(scope),
        _phases(picture),
        _kernel(leaves, short),
        _classes(leaves),
        _memory(scope),
    ]


def _on_cpu(scope: Scope) -> list[str]:
    return [f"{CPU_ONLY_NOTE[0].upper()}{CPU_ONLY_NOTE[1:]}."] if scope.trace.is_cpu_only else []


def of_what(scope: Scope) -> str:
    """ "one step", or "the capture" where it has no steps."""
    return "one step" if len(scope.steps) else "the capture"


def span_ns(scope: Scope) -> np.ndarray:
    """By step: from the first start to the last end of what it launched; of the capture where it has no steps."""
    found = scope.activities
    rows = np.flatnonzero(scope.step != NO_STEP) if len(scope.steps) else np.arange(len(found))
    step = scope.step[rows] if len(scope.steps) else np.zeros(len(rows), np.int64)
    first, last = np.full(scope.count, np.iinfo(np.int64).max), np.zeros(scope.count, np.int64)
    np.minimum.at(first, step, found.start_ns[rows])
    np.maximum.at(last, step, found.end_ns[rows])
    return last - first


def _steps(scope: Scope) -> str:
    spans = span_ns(scope)
    mean, where = duration(float(spans.mean())), device_phrase(scope.trace.is_cpu_only)
    if not len(scope.steps):
        return f"No range named {scope.step_name!r} holds work: this page is about the whole capture, {mean} long."
    if len(spans) == 1:
        return f"One step was captured; {where} it takes {mean}."
    spread = f"{duration(int(spans.min()))} to {duration(int(spans.max()))}"
    return f"{len(spans)} steps were captured; {where} one takes {mean} on the mean ({spread})."


def _busy(scope: Scope) -> list[str]:
    if not scope.span_ns or scope.trace.is_cpu_only:
        return []
    idle = scope.parts_ns["idle"]
    from_first = "From the first step's start to the last one's end" if len(scope.steps) else "From first to last"
    found = f"{from_first} something ran on the device for {percent(1 - scope.share(idle))} of the time"
    return [f"{found}; for {percent(scope.share(idle))} nothing did."]


def _phases(picture: Picture) -> str:
    order = sorted(picture.bars, key=lambda bar: -bar.ms)[:4]
    told = ", ".join(f"{bar.name} {duration(1e6 * bar.ms)} ({percent(bar.share)})" for bar in order)
    more = f", and {len(picture.bars) - len(order)} more" if len(picture.bars) > len(order) else ""
    return f"Its kernels and memory operations take {duration(1e6 * picture.ms)} together: {told}{more}."


def kernel_with_most_time(leaves: Sequence[Leaf]) -> str:
    """The full name of the kernel that takes most of a step, of those that have leaves."""
    times: dict[str, float] = {}
    for leaf in leaves:
        times[leaf.kernel] = times.get(leaf.kernel, 0.0) + leaf.ms
    return max(times, key=times.__getitem__)


def _kernel(leaves: Sequence[Leaf], short: Mapping[str, str]) -> str:
    first = kernel_with_most_time(leaves)
    ms = sum(leaf.ms for leaf in leaves if leaf.kernel == first)
    launches = sum(leaf.launches for leaf in leaves if leaf.kernel == first)
    share = ms / max(sum(leaf.ms for leaf in leaves), 1e-12)
    return (
        f"The kernel with the most time is {short[first]}: {duration(1e6 * ms)} ({percent(share)}),"
        f" {f'{launches:,.1f}'.removesuffix('.0')} launch{'' if launches == 1 else 'es'}."
    )


def _classes(leaves: Sequence[Leaf]) -> str:
    times: dict[str, float] = {}
    for leaf in leaves:
        times[family(leaf.kernel_class)] = times.get(family(leaf.kernel_class), 0.0) + leaf.ms
    whole = max(sum(times.values()), 1e-12)
    order = sorted(times, key=lambda name: -times[name])[:MOST_CLASSES]
    return "By class: " + ", ".join(f"{name} {percent(times[name] / whole)}" for name in order) + "."


def _memory(scope: Scope) -> str:
    looked_at = scope.step != NO_STEP if len(scope.steps) else np.ones(len(scope.activities), bool)
    mine = scope.is_memory & looked_at
    if not mine.any():
        return "No memory was copied or set."
    ns = int(scope.activities.duration_ns[mine].sum()) / scope.count
    return f"Copies and sets of memory take {duration(ns)}, {mine.sum() / scope.count:,.0f} of them."
