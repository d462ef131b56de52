"""A run on several GPUs: takes the locks of all, starts a process for each rank, and merges the results of the ranks.

    python -m cs336_model --spec '{"gpus": 2, ...}' ...                     this process, which imports no torch
        [nsys profile ...] python -m cs336_model ... --rank 0 --meeting FOLDER
        [nsys profile ...] python -m cs336_model ... --rank 1 --meeting FOLDER

Ranks hold no locks. They and this process meet by files in a folder: rankN/ready when a rank has imported everything;
`begin` when this process has the GPUs alone; rankN/freed when the rank needs its GPU no longer; `end` when this process
shares the locks again, so that profiles may be written. The first rank that fails, or whose result says why it has no
times, ends the others, which would wait for it.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from cs336_model import locks
from cs336_model.results import STAGES, Capture, Result, Timing, read_result, write_result
from cs336_model.spec import Spec

POLL_S = 0.01


class RanksEnded(Exception):
    """These ranks (exit statuses by number) ended before their time, at the same moment and before all others."""


def run_ranks(spec: Spec, options: argparse.Namespace) -> None:
    """Runs all ranks, and writes the result of the run to options.output. If a rank crashes, this process exits with
    its status, and there is no result. `options` are those of `python -m cs336_model`."""
    gpus = [] if spec.device == "cpu" else locks.visible_gpus()
    if len(gpus) < spec.gpus and (gpus or spec.device == "cuda"):
        reason = f"gpus is {spec.gpus}, and {len(gpus)} are visible: check nvidia-smi and CUDA_VISIBLE_DEVICES"
        write_result(STAGES[spec.stage](status="unsupported", reason=reason), options.output)
        return
    with tempfile.TemporaryDirectory(prefix="ranks-") as folder:
        meeting = Path(folder)
        folders = [meeting / f"rank{rank}" for rank in range(spec.gpus)]
        results = [folder / f"{spec.stage}.json" for folder in folders]
        processes, held, started = [], locks.shared(options.locks), options.output.with_name("started")
        try:
            for rank, folder in enumerate(folders):
                folder.mkdir()
                processes.append(start_rank(rank, spec, options, results[rank]))
            wait_for(processes, [folder / "ready" for folder in folders])
            held.release()
            held = locks.exclusive(options.locks, gpus or [locks.HOST], spec.gpus if gpus else 1)
            started.touch()
            meeting.joinpath("devices").write_text(json.dumps(held.names if gpus else []))
            meeting.joinpath("devices").rename(meeting / "begin")
            wait_for(processes, [folder / "freed" for folder in folders])
            held.release()
            started.unlink()
            locks.shared(options.locks)  # until this process ends
            meeting.joinpath("end").touch()
            wait_for(processes)
            result = merge_results([read_result(path) for path in results])
        except RanksEnded as error:
            (statuses,) = error.args
            rank = min(statuses, key=lambda rank: not results[rank].exists())
            print(f"rank {rank} ended first, with status {statuses[rank]}", file=sys.stderr, flush=True)
            if not results[rank].exists() or (result := read_result(results[rank])).status == "complete":
                sys.exit(max(statuses[rank], 1))
        finally:
            for process in processes:
                process.kill()
                process.wait()
    write_result(result, options.output)


def start_rank(rank: int, spec: Spec, options: argparse.Namespace, result: Path) -> subprocess.Popen:
    """The process of one rank, which writes its result to `result`, and prints to what this process prints to."""
    suffix, capture = f"_rank{rank}" if rank else "", options.capture
    if capture and rank:  # of other stages, what rank 0 records stands for all
        folder = capture.parent if spec.stage == "capture" else result.parent
        capture = folder / f"{capture.stem}{suffix}{capture.suffix}"
    command = [word.replace("{rank}", suffix) for word in options.rank_command]
    command += [sys.executable, "-m", "cs336_model", "--spec", msgspec.json.encode(spec), "--output", result]
    command += ["--rank", str(rank), "--meeting", result.parent.parent, "--profiler", options.profiler]
    command += ["--capture", capture] if capture else []
    # all processes are on one host; NVLink's multicast is off unless the environment says otherwise
    variables = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_NVLS_ENABLE": "0"} | os.environ
    variables |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(spec.gpus)}  # as torchrun names them
    return subprocess.Popen(command, env=variables, stdin=subprocess.DEVNULL)


def wait_for(processes: Sequence[subprocess.Popen], files: Sequence[Path] = ()) -> None:
    """Waits until each process has made its file; without files, until all have ended. Else raises RanksEnded."""
    while True:
        statuses = [process.poll() for process in processes]
        done = [path.exists() for path in files] or [status == 0 for status in statuses]
        ended = {rank: status for rank, status in enumerate(statuses) if status or (status == 0 and not done[rank])}
        if ended:
            raise RanksEnded(ended)
        if all(done):
            return
        time.sleep(POLL_S)


def merge_results(results: Sequence[Result]) -> Result:
    """The first rank's result, with the slowest rank's time of every step, and the highest peak of memory."""
    merged = results[0]
    if isinstance(merged, Timing):
        for name in ("step_seconds", "warmup_seconds", "without_communication_seconds"):
            setattr(merged, name, list(map(max, *(getattr(one, name) for one in results))))
        merged.peak_allocated_bytes = max(one.peak_allocated_bytes or 0 for one in results) or None
    if isinstance(merged, Capture):
        merged.ranks = len(results)
    return merged
