"""Compares the pipeline with a shell loop over the same runs: `python -m benchmarks.plain_loop FOLDER [RUN ...]`.

The loop does one run after another, as a shell script would: the timing; the capture, `nsys profile` of the entire
process; five reports of one `nsys stats`, which exports once. The pipeline makes the documents too. Both are measured
from start to end, one after the other, on the visible GPUs; the loop uses the first. The output is the seconds of each,
and their ratio. With --only, one of them is measured; the seconds of a loop over many runs, cut in pieces, add up.
"""

import json
import subprocess
from functools import partial
from pathlib import Path
from typing import Literal

from benchmarks.harness import PYTHON, ROOT, project_config, run, seconds, snakemake_command
from profile_grid.study.runs import Run, checked_config, grid_runs, specification
from profile_grid.study.stage import Stage
from profile_grid.study.stages import CAPTURE, TIMING

DEFAULT = [f"{model}_ctx512_{mode}" for model in ("small", "large") for mode in ("forward", "train_step")]
REPORTS = ("cuda_gpu_kern_sum", "cuda_api_sum", "nvtx_sum", "nvtx_kern_sum", "cuda_gpu_mem_time_sum")
TARGETS = ("results/answers/answers.md", "results/tables/provenance.json")
DIMENSIONS = {"models": "model", "context_lengths": "context_length", "modes": "mode"}


def main(
    folder: Path,
    runs: list[str] = DEFAULT,
    *,
    grid: str = "cs336-2025",
    all: bool = False,
    only: Literal["pipeline", "loop"] | None = None,
    cores: str = "all",
) -> None:
    config = checked_config(project_config(grid=grid))
    known = grid_runs(config)
    chosen = {name: known[name] for name in (known if all else runs)}
    ways = {"pipeline": partial(pipeline, cores=cores), "loop": loop}
    taken_s = {}
    for name in ways if only is None else [only]:
        taken_s[name] = seconds(partial(ways[name], folder.resolve() / name, config, chosen))
        print(f"{name}: {taken_s[name]:.1f} s for {len(chosen)} runs", flush=True)
    if len(taken_s) == 2:
        print(f"the loop takes {taken_s['loop'] / taken_s['pipeline']:.2f} times as long as the pipeline")


def pipeline(folder: Path, config: dict, runs: dict[str, Run], cores: str) -> None:
    """Snakemake makes tables and documents of these runs."""
    products = [{key: [run.values[name]] for key, name in DIMENSIONS.items()} for run in runs.values()]
    grids = config["grids"] | {"runs": products}
    settings = {"grid": "runs", "grids": grids, "counters": {"runs": ""}}  # the loop counts nothing either
    command = [*snakemake_command(folder, settings, cores), "--", *TARGETS]
    with (folder / "snakemake.log").open("w") as log:
        subprocess.run(command, cwd=ROOT, check=True, stdout=log, stderr=subprocess.STDOUT)


def loop(folder: Path, config: dict, runs: dict[str, Run]) -> None:
    """Times, captures and reports one run after another."""
    folder.mkdir(parents=True)
    with (folder / "loop.log").open("w") as log:

        def call(*command: str) -> None:
            log.write(f"$ {' '.join(command[:6])}\n")
            log.flush()
            subprocess.run(command, cwd=ROOT, check=True, stdout=log, stderr=subprocess.STDOUT)

        for name, run_values in runs.items():
            stem = folder / name
            call(*program(config, run_values, TIMING), "--output", f"{stem}.timing.json")
            profiled = [*program(config, run_values, CAPTURE), "--output", f"{stem}.capture.json", "--profiler", "nsys"]
            call("nsys", "profile", "--trace=cuda,nvtx", "--force-overwrite=true", f"--output={stem}", *profiled)
            reports = [text for report in REPORTS for text in ("--report", report)]
            call("nsys", "stats", "--force-export=true", *reports, f"{stem}.nsys-rep")


def program(config: dict, run_values: Run, stage: Stage) -> list[str]:
    """The command of the program that a stage measures, without its output."""
    program_specification = json.loads(specification(config, run_values, stage))["program"]
    return [*PYTHON, "cs336_model.program.benchmark", "--spec", json.dumps(program_specification)]


if __name__ == "__main__":
    run(main)
