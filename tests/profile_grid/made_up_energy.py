"""Made-up results of the stage energy: windows of 5 s at a power that the test names."""

from profile_grid.results.load_runs import MeasuredRun
from profile_grid.results.results import COMPLETE, StageResult, StageStatus
from profile_grid.typed_json import parse_as
from tests.profile_grid.made_up_results import TIMING, changed

STATE = {"temperature_c": 40, "sm_clock_mhz": 1980, "memory_clock_mhz": 3201, "throttle_reasons": []}
WINDOW_S = 5.0


def energy_result(leading: dict, watts: float, step_s: float, idle_w: float, forward_flops: int | None) -> StageResult:
    """A process that drew `watts` in the second of three windows and 1 % less and more around it."""
    steps = round(WINDOW_S / step_s)
    idle, stepping = _window(idle_w, 0), [_window(watts * part, steps) for part in (0.99, 1, 1.01)]
    facts = {"counter": "NVML, the whole GPU", "tick_s": 0.1, "windows": [idle, *stepping, idle]}
    program = {"program__spec__dimensions": leading, "program__flops": {"forward": forward_flops}}
    return parse_as(StageResult, changed(TIMING, facts=facts, **program))


def measured_run(leading: dict, result: StageResult) -> MeasuredRun:
    """A run that has this result of the stage energy alone."""
    return MeasuredRun(leading, {"energy": result}, {"energy": StageStatus(COMPLETE, None, [])})


def _window(watts: float, steps: int) -> dict:
    microjoules = round(1e6 * watts * WINDOW_S)
    kind = "steps" if steps else "idle"
    return {"kind": kind, "seconds": WINDOW_S, "microjoules": microjoules, "steps": steps, "begin": STATE, "end": STATE}
