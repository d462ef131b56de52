"""Compares speed-ups of a finished grid with PyTorch's own timer: `python -m benchmarks.speed_ups RUN BASE_RUN [...]`.

The arguments are pairs of runs of results/runs: a run, and the one that it is compared with. Both are built from the
specification in their timing.json, in one process, and torch.utils.benchmark.Timer times their steps: it chooses how
often, and takes the median. The output is the speed-up by the timer, that by the means in timing.json, and their ratio.
"""

import gc
import json
import statistics
from pathlib import Path

import torch
from torch.utils.benchmark import Timer

from benchmarks.harness import print_row, run
from cs336_model.program.device import resolve_device
from cs336_model.program.process import Progress
from cs336_model.program.spec import RunSpec, read_spec
from cs336_model.program.steps import PhaseClock, make_subject, run_steps
from cs336_model.program.variants.effects import compiling, process_settings

MIN_RUN_S = 5.0  # for which the timer measures
RUNS = Path("results/runs")


def main(runs: list[str], *, folder: Path = RUNS) -> str | None:
    if len(runs) % 2:
        return "name the runs in pairs, each followed by its base"
    print_row("run", "ms", "base, ms", "speed-up by the timer", "in the grid", "grid ÷ timer", heading=True)
    for pair in zip(runs[::2], runs[1::2], strict=True):
        programs = [json.loads((folder / name / "timing.json").read_text())["program"] for name in pair]
        ms, base_ms = (median_ms(read_spec(json.dumps(program["spec"]))) for program in programs)
        mean_s, base_mean_s = (statistics.mean(program["step_seconds"]) for program in programs)
        by_timer, in_grid = base_ms / ms, base_mean_s / mean_s  # speed-ups
        print_row(pair[0], ms, base_ms, by_timer, in_grid, in_grid / by_timer)


def median_ms(spec: RunSpec) -> float:
    """Median milliseconds of a step of this run, after its warm-up, by PyTorch's timer."""
    device = resolve_device(spec.device)
    with process_settings(spec):
        subject = make_subject(spec, device)
        with compiling(spec):
            run_steps(subject, 1, PhaseClock(device, "compile", Progress()))  # compiles in the first step
        run_steps(subject, spec.warmup_steps, PhaseClock(device, "warmup", Progress()))
        timer = Timer(
            "run_steps(subject, 1, PhaseClock(subject.device, 'measure', Progress()))",
            globals={"run_steps": run_steps, "subject": subject, "PhaseClock": PhaseClock, "Progress": Progress},
            num_threads=torch.get_num_threads(),
        )
        median_s = timer.blocked_autorange(min_run_time=MIN_RUN_S).median
    del subject, timer
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return 1e3 * median_s


if __name__ == "__main__":
    run(main)
