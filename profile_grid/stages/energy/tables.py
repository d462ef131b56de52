"""The tables of energy: every window of a process, and the energy of a step and a token by run."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from cs336_model.arithmetic.flops import BACKWARD_IN_FORWARDS
from cs336_model.ranges import BACKWARD, PHASES_OF_MODE
from profile_grid.results import load_runs, results
from profile_grid.study.stages import ENERGY
from profile_grid.study.table_spec import TableSpec, columns
from profile_grid.typed_json import parse_as

STEPS = "steps"
STATE_FIELDS = ("temperature_c", "sm_clock_mhz", "memory_clock_mhz")
QUANTITIES = ("joules_per_step", "joules_per_token", "power_w", "idle_power_w", "tflops_per_watt")
QUANTITY_COLUMNS = tuple(column for name in QUANTITIES for column in (name, f"{name}_std"))


@dataclass(frozen=True)
class DeviceState:
    """A device at one moment; None for unknown values."""

    temperature_c: int | None
    sm_clock_mhz: int | None
    memory_clock_mhz: int | None
    throttle_reasons: list[str] | None


@dataclass(frozen=True)
class EnergyWindow:
    """One window between two readings of the counter."""

    kind: str  # STEPS, or "idle"
    seconds: float
    microjoules: int
    steps: int  # 0 in an idle window
    begin: DeviceState
    end: DeviceState

    @property
    def joules(self) -> float:
        return 1e-6 * self.microjoules

    @property
    def watts(self) -> float:
        return self.joules / self.seconds


@dataclass(frozen=True)
class EnergyFacts:
    """The facts of energy.json: see cs336_model/program/energy.py."""

    counter: str  # its name
    tick_s: float
    windows: list[EnergyWindow]


def study_tables(runs: list[load_runs.MeasuredRun]) -> dict[str, pd.DataFrame]:
    """`energy` and `energy_windows`, of the runs in which the stage is complete."""
    run_rows, window_rows = [], []
    for run in runs:
        if run.is_complete(ENERGY.name):
            result = run.results[ENERGY.name]
            facts = parse_as(EnergyFacts, result.facts, "facts")
            run_rows.append(run.leading | energy_of_run(result.program, facts))
            window_rows += [run.leading | row for row in _window_rows(facts)]
    return {"energy": ENERGY_TABLE.table(run_rows), "energy_windows": ENERGY_WINDOWS.table(window_rows)}


def energy_of_run(program: results.ProgramResult, facts: EnergyFacts) -> dict:
    """The row of a run: means over its windows, and standard deviations (n - 1) between these."""
    step_windows = [window for window in facts.windows if window.kind == STEPS]
    idle_windows = [window for window in facts.windows if window.kind != STEPS]
    dimensions = program.spec["dimensions"]
    tokens = dimensions["batch_size"] * dimensions["context_length"]
    flops = model_flops(program.flops, dimensions["mode"])
    step_joules = [window.joules / window.steps for window in step_windows]
    quantities = {
        "joules_per_step": step_joules,
        "joules_per_token": [joules / tokens for joules in step_joules],
        "power_w": [window.watts for window in step_windows],
        "idle_power_w": [window.watts for window in idle_windows],
        "tflops_per_watt": [1e-12 * flops / joules for joules in step_joules] if flops else [],
    }
    steps = sum(window.steps for window in step_windows)
    row = {
        "counter": facts.counter,
        "windows": len(step_windows),
        "steps": steps,
        "step_ms": 1e3 * sum(window.seconds for window in step_windows) / steps,
        "tokens": tokens,
        "model_flops": flops,
        "tick_ms": 1e3 * facts.tick_s,
        "tick_share": facts.tick_s / min(window.seconds for window in step_windows),
    }
    for name, values in quantities.items():
        row[name] = np.mean(values) if values else np.nan
        row[f"{name}_std"] = np.std(values, ddof=1) if len(values) > 1 else np.nan
    return row


def model_flops(flops: Mapping[str, int | None] | None, mode: str) -> int | None:
    """FLOPs of the matrix products of a step, without recomputation; None if those of its forward pass are unknown."""
    forward = (flops or {}).get("forward")
    step_in_forwards = 1 + BACKWARD_IN_FORWARDS if BACKWARD in PHASES_OF_MODE[mode] else 1
    return None if forward is None else step_in_forwards * forward


def _window_rows(facts: EnergyFacts) -> list[dict]:
    rows = []
    for number, window in enumerate(facts.windows):
        reasons = {*(window.begin.throttle_reasons or ()), *(window.end.throttle_reasons or ())}
        rows.append(
            {
                "window": number,
                "kind": window.kind,
                "seconds": window.seconds,
                "joules": window.joules,
                "steps": window.steps,
                "power_w": window.watts,
                **{f"begin_{name}": getattr(window.begin, name) for name in STATE_FIELDS},
                **{f"end_{name}": getattr(window.end, name) for name in STATE_FIELDS},
                "throttled": "; ".join(sorted(reasons)),
            }
        )
    return rows


ENERGY_TABLE = TableSpec(
    "energy",
    "One row per run with the stage energy: means over its windows, no profiler attached",
    columns("""
    counter | text | | whose energy is counted: NVML for the entire GPU, RAPL for the packages of the CPU
    windows | int | | windows in which steps ran
    steps | int | | steps in all of them
    step_ms | float | ms | their seconds ÷ their steps
    tokens | int | tokens | of one step: batch × context
    model_flops | int | FLOP | of the matrix products of one step, from the shapes, without recomputation
    joules_per_step | float | J | energy of a window ÷ its steps, the mean over the windows
    joules_per_step_std | float | J | standard deviation (n − 1) between the windows
    joules_per_token | float | J | the same ÷ tokens
    joules_per_token_std | float | J | its standard deviation
    power_w | float | W | energy of a window ÷ its seconds, the mean over the windows
    power_w_std | float | W | its standard deviation
    idle_power_w | float | W | the same for the idle windows before and after, with the model in memory
    idle_power_w_std | float | W | its standard deviation
    tflops_per_watt | float | TFLOP/s/W | model_flops ÷ energy of a step; empty if unknown
    tflops_per_watt_std | float | TFLOP/s/W | its standard deviation
    tick_ms | float | ms | time between two changes of the counter, as measured
    tick_share | float | of 1 | tick ÷ the shortest window: the maximum error of one window from it, at constant power
"""),
)
ENERGY_WINDOWS = TableSpec(
    "energy_windows",
    "One row per run and window of the stage energy, in their order",
    columns("""
    window | int | | number, from 0
    kind | text | | steps, or idle: nothing runs
    seconds | float | s | between the two readings of the counter, with an idle device at both
    joules | float | J | counted in between
    steps | int | | steps in between
    power_w | float | W | joules ÷ seconds
    begin_temperature_c | int | °C | of the GPU before the window
    end_temperature_c | int | °C | after it
    begin_sm_clock_mhz | int | MHz | SM clock before the window
    end_sm_clock_mhz | int | MHz | after it
    begin_memory_clock_mhz | int | MHz | memory clock before the window
    end_memory_clock_mhz | int | MHz | after it
    throttled | text | | what reduced the clocks at either end; empty for nothing
"""),
)
TABLES = (ENERGY_TABLE, ENERGY_WINDOWS)
