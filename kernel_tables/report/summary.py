"""The summary of a capture, in sentences."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from kernel_tables.diagnosis.scope import NO_STEP, Scope
from kernel_tables.kernel_classes.categories import family
from kernel_tables.page.step import Leaf
from kernel_tables.reading.schema import WINDOW_KEY
from kernel_tables.units import CPU_ONLY_NOTE, duration, percent

if TYPE_CHECKING:
    from kernel_tables.trace import Trace

MOST_CLASSES = 3


def sentences(scope: Scope, leaves: Sequence[Leaf], short: Mapping[str, str]) -> list[str]:
    """The kernel and the classes with the most time, and memory operations."""
    if not leaves:
        return ["No kernel and no memory operation was recorded in what is looked at."]
    return [*_on_cpu(scope), *_steps(scope), _kernel(leaves, short), _classes(leaves), *_memory(scope)]


def about(trace: Trace) -> list[str]:
    """The GPU, the versions, the steps and the time of the recording, as far as the capture contains them."""
    window = _window(trace)
    version = trace.metadata.get("EXPORT_PRODUCT_VERSION", "")
    product = trace.metadata.get("EXPORT_PRODUCT_NAME", "")
    by_torch = trace.metadata.get("CAPTURE_BACKEND") == "torch"
    torch_version = window.get("torch") or (version if by_torch else "")
    began_ns = trace.capture.began_utc_ns()
    first, done = window.get("first"), window.get("done")
    facts = [
        "; ".join(sorted(set(trace.capture.gpus()))) if not trace.is_cpu_only else "CPU",
        f"PyTorch {torch_version}" if torch_version else "",
        "" if by_torch else f"{product} {version}".strip(),
        f"steps {first} to {first + done - 1}" if isinstance(first, int) and isinstance(done, int) and done else "",
        f"{datetime.fromtimestamp(began_ns / 1e9, UTC):%Y-%m-%d %H:%M} UTC" if began_ns else "",
    ]
    return [fact for fact in facts if fact]


def program(trace: Trace) -> str:
    """The recorded program's command line; "" if the capture lacks it."""
    return str(_window(trace).get("program", ""))


def _window(trace: Trace) -> dict:
    try:
        window = json.loads(trace.metadata.get(WINDOW_KEY, "{}"))
    except ValueError:
        return {}
    return window if isinstance(window, dict) else {}


def _on_cpu(scope: Scope) -> list[str]:
    return [f"{CPU_ONLY_NOTE[0].upper()}{CPU_ONLY_NOTE[1:]}."] if scope.trace.is_cpu_only else []


def of_what(scope: Scope) -> str:
    """ "one step", or "the capture" without steps."""
    return "one step" if len(scope.steps) else "the capture"


def _steps(scope: Scope) -> list[str]:
    nothing = f"No range named {scope.step_name!r} holds work: this page is about the whole capture."
    return [] if len(scope.steps) else [nothing]


def kernel_with_most_time(leaves: Sequence[Leaf]) -> str:
    """The full name of the kernel with the most time among the leaves."""
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
    total_ms = max(sum(times.values()), 1e-12)
    order = sorted(times, key=lambda name: -times[name])[:MOST_CLASSES]
    return "By class: " + ", ".join(f"{name} {percent(times[name] / total_ms)}" for name in order) + "."


def _memory(scope: Scope) -> list[str]:
    in_scope = scope.step != NO_STEP if len(scope.steps) else np.ones(len(scope.activities), bool)
    is_memory = scope.is_memory & in_scope
    if not is_memory.any():
        return []
    ns = int(scope.activities.duration_ns[is_memory].sum()) / scope.count
    return [f"Copies and sets of memory take {duration(ns)}, {is_memory.sum() / scope.count:,.0f} of them."]
