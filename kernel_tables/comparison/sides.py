"""What a comparison knows of one capture: on what it was made, and launches and time of every step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernel_tables.attribution.capture_arrays import CaptureArrays
from kernel_tables.attribution.keys import compact
from kernel_tables.diagnosis.scope import NO_STEP, Scope
from kernel_tables.views.phases import phases_and_parts

LEVELS = ("phase", "part", "class", "kernel")
FACTS = {"EXPORT_PRODUCT_VERSION": "nsys", "EXPORT_SCHEMA_VERSION": "schema", "CAPTURE_BACKEND": "backend"}


@dataclass(frozen=True)
class PerStep:
    """Launches and nanoseconds of GPU time of one thing, by step."""

    launches: np.ndarray
    time_ns: np.ndarray


@dataclass(frozen=True)
class Side:
    """One capture: facts by name, its number of steps (1, all of it, where it has no steps), and by level what stands
    there."""

    facts: dict[str, str]
    steps: int
    rows: dict[str, dict[str, PerStep]]
    time_ns: np.ndarray  # of all activities, by step


def side_of(trace: CaptureArrays, step_name: str = "step") -> Side:
    """What a comparison knows of a trace. Raises ImpossibleCapture for one that cannot be believed."""
    scope = Scope(trace, step_name)
    has_steps = bool(len(scope.steps))
    kept = np.flatnonzero(scope.step != NO_STEP) if has_steps else np.arange(len(scope.activities))
    step = scope.step[kept] if has_steps else np.zeros(len(kept), np.int64)
    found = scope.activities
    phases, parts = phases_and_parts(trace.range_paths.tuples, step_name)
    path = trace.activity_path[kept]
    labels = {
        "phase": (path, phases),
        "part": (path, parts),
        "class": (found.name[kept], trace.activity_classes),
        "kernel": (found.name[kept], found.names),
    }
    duration = found.duration_ns[kept]
    rows = {level: _rows(code, names, step, duration, scope.count) for level, (code, names) in labels.items()}
    facts = {name: trace.metadata[key] for key, name in FACTS.items() if key in trace.metadata}
    facts |= {"GPUs": "; ".join(trace.capture.gpus()) or "not told", "steps": str(len(scope.steps))}
    trace.capture.require_sound()
    return Side(facts, scope.count, rows, _sums(step, duration, scope.count))


def _rows(code: np.ndarray, names: list[str], step: np.ndarray, duration_ns: np.ndarray, steps: int):
    """What stands under each name, by name; codes of the same name are one."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    used, index = compact(code)
    number = np.array([numbers[names[one]] for one in used.tolist()], np.int64)[index]
    key = number * steps + step
    size = len(numbers) * steps
    launches = np.bincount(key, minlength=size).reshape(-1, steps)
    time_ns = _sums(key, duration_ns, size).reshape(-1, steps)
    return {
        name: PerStep(launches[number], time_ns[number]) for name, number in numbers.items() if launches[number].any()
    }


def _sums(key: np.ndarray, duration_ns: np.ndarray, size: int) -> np.ndarray:
    sums = np.zeros(size, np.int64)
    np.add.at(sums, key, duration_ns)
    return sums
