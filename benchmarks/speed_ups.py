"""Speed-ups of a finished grid held against PyTorch's own timer: `python -m benchmarks.speed_ups RUN BASE_RUN [...]`.

Two runs at a time of results/runs, the second the base of the first. Each is made anew from the specification in its
timing.json, one after another in one process, and its step is timed by torch.utils.benchmark.Timer, which chooses how
often and takes the median. Printed: the ratio that this gives, that of the means of timing.json, and how far apart.
"""

from __future__ import annotations

import argparse
import gc
import json
from pathlib import Path

import torch
from torch.utils.benchmark import Timer

from cs336_model.program.device import resolve_device
from cs336_model.program.process_cost import Progress
from cs336_model.program.spec import RunSpec, read_spec
from cs336_model.program.steps import PhaseClock, make_subject, run_steps
from cs336_model.program.variants.compilation import compiling
from cs336_model.program.variants.effects import process_settings

SECONDS = 5.0  # that the timer measures for


def median_ms(spec: RunSpec) -> float:
    """Median milliseconds of a step of this run, after its warm-up, by PyTorch's timer."""
    device = resolve_device(spec.device)
    with process_settings(spec):
        subject = make_subject(spec, device)
        with compiling(spec):
            run_steps(subject, 1, PhaseClock(device, "compile", Progress()))
        run_steps(subject, spec.warmup_steps, PhaseClock(device, "warmup", Progress()))
        timer = Timer(
            "run_steps(subject, 1, PhaseClock(subject.device, 'measure', Progress()))",
            globals={"run_steps": run_steps, "subject": subject, "PhaseClock": PhaseClock, "Progress": Progress},
            num_threads=torch.get_num_threads(),
        )
        found = timer.blocked_autorange(min_run_time=SECONDS)
    del subject, timer
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return 1e3 * found.median


def measured_ms(result: dict) -> float:
    """Mean milliseconds of a step, as the timing of the grid has it."""
    seconds = result["program"]["step_seconds"]
    return 1e3 * sum(seconds) / len(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", help="names of runs, each before its base")
    parser.add_argument("--folder", type=Path, default=Path("results/runs"), help="holds a folder for each run")
    arguments = parser.parse_args()
    if len(arguments.runs) % 2:
        raise SystemExit("name the runs in pairs, each before its base")
    for name, base in zip(arguments.runs[::2], arguments.runs[1::2], strict=True):
        results = [json.loads((arguments.folder / run / "timing.json").read_text()) for run in (name, base)]
        own, of_base = (median_ms(read_spec(json.dumps(one["program"]["spec"]))) for one in results)
        grid = measured_ms(results[1]) / measured_ms(results[0])
        print(
            f"{name}: {of_base:.2f} ms ÷ {own:.2f} ms is {of_base / own:.3f} by torch.utils.benchmark, {grid:.3f} in"
            f" the grid ({100 * (grid * own / of_base - 1):+.1f} %)",
            flush=True,
        )


if __name__ == "__main__":
    main()
