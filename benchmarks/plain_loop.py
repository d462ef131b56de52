"""The pipeline beside a shell loop over the same runs: `python -m benchmarks.plain_loop FOLDER [RUN ...]`.

The loop does one run after another what a shell script would: the timing; the capture, `nsys profile` of the whole
process; five reports of one `nsys stats`, which exports once. The pipeline makes the documents too. Both are measured
from start to end, one after the other, on the GPUs that are visible; the loop uses the first. Printed: seconds of each,
and their ratio. With --only one of them is measured; the seconds of a loop over many runs, cut in pieces, add up.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import yaml

from benchmarks.snakemake_command import ROOT, snakemake_command
from profile_grid.study.runs import checked_config, grid_runs, specification
from profile_grid.study.stages import CAPTURE, TIMING

DEFAULT = [f"{model}_ctx512_{mode}" for model in ("small", "large") for mode in ("forward", "train_step")]
REPORTS = ("cuda_gpu_kern_sum", "cuda_api_sum", "nvtx_sum", "nvtx_kern_sum", "cuda_gpu_mem_time_sum")
TARGETS = ("results/answers/answers.md", "results/tables/provenance.json")
DIMENSIONS = {"models": "model", "context_lengths": "context_length", "modes": "mode"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("runs", nargs="*", default=DEFAULT, metavar="RUN", help=f"of --grid: {', '.join(DEFAULT)}")
    parser.add_argument("--grid", default="cs336-2025", help="that has them; --all takes all of its runs")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--only", choices=("pipeline", "loop"), help="measures that alone")
    parser.add_argument("--cores", default="all", help="of the pipeline")
    options = parser.parse_args()
    config = checked_config(yaml.safe_load((ROOT / "config.yaml").read_text()) | {"grid": options.grid})
    runs = grid_runs(config)
    names = list(runs) if options.all else options.runs
    folder = options.folder.resolve()
    ours = theirs = None
    if options.only != "loop":
        products = [{key: [runs[name].values[one]] for key, one in DIMENSIONS.items()} for name in names]
        ours = seconds(lambda: pipeline(folder / "pipeline", config, products, options.cores))
        print(f"pipeline: {ours:.1f} s for {len(names)} runs", flush=True)
    if options.only != "pipeline":
        told = {name: [program(config, runs[name], stage) for stage in (TIMING, CAPTURE)] for name in names}
        theirs = seconds(lambda: loop(folder / "loop", told))
        print(f"plain loop: {theirs:.1f} s for {len(names)} runs")
    if ours and theirs:
        print(f"{theirs / ours:.2f} times as long as the pipeline")


def seconds(work) -> float:
    started = time.monotonic()
    work()
    return time.monotonic() - started


def pipeline(folder: Path, config: dict, products: list[dict], cores: str) -> None:
    """Snakemake makes tables and documents of these runs."""
    settings = {
        "grid": "runs",
        "grids": config["grids"] | {"runs": products},
        "counters": {"runs": ""},
    }  # nor has the loop
    command = [*snakemake_command(folder, settings, cores), "--", *TARGETS]
    with (folder / "snakemake.log").open("w") as log:
        subprocess.run(command, cwd=ROOT, check=True, stdout=log, stderr=subprocess.STDOUT)


def program(config: dict, run, stage) -> list[str]:
    """The command of what a stage measures, but for what it writes."""
    told = json.loads(specification(config, run, stage))["program"]
    return [sys.executable, "-m", "cs336_model.program.benchmark", "--spec", json.dumps(told)]


def loop(folder: Path, told: dict[str, list[list[str]]]) -> None:
    """Times, captures and reports one run after another."""
    folder.mkdir(parents=True)
    with (folder / "loop.log").open("w") as log:

        def run(*command: str) -> None:
            log.write(f"$ {' '.join(command[:6])}\n")
            log.flush()
            subprocess.run(command, cwd=ROOT, check=True, stdout=log, stderr=subprocess.STDOUT)

        for name, (timing, capture) in told.items():
            stem = folder / name
            run(*timing, "--output", f"{stem}.timing.json")
            profiled = [*capture, "--output", f"{stem}.capture.json", "--profiler", "nsys"]
            run("nsys", "profile", "--trace=cuda,nvtx", "--force-overwrite=true", f"--output={stem}", *profiled)
            reports = [text for report in REPORTS for text in ("--report", report)]
            run("nsys", "stats", "--force-export=true", *reports, f"{stem}.nsys-rep")


if __name__ == "__main__":
    main()
