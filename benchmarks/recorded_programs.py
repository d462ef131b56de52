"""Records typical programs and compares them with plain runs: `python -m benchmarks.recorded_programs [nanogpt ...]`.

Each program of tests/kernel_recorder/programs and benchmarks/programs runs three times: plainly, recorded by nsys
(without it by PyTorch's profiler), and under torch.profiler with ranges around its phases
(benchmarks/programs/in_phases.py). Without a GPU, the larger programs are small. The output and the exit status of the
first two must be equal; most programs print a digest of their weights and random state. Six steps and each phase must
have as many kernels as torch.profiler counts, on every rank. The exit status is 1 if anything differs.

--jobs programs run at once. --keep FOLDER keeps captures and outputs.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import pandas as pd

from benchmarks.harness import PYTHON, ROOT, print_row, run
from benchmarks.programs.in_phases import file_of_rank
from kernel_recorder.in_process.handover import DEFAULT_SKIP, DEFAULT_STEPS
from kernel_recorder.in_process.module_ranges import DECODE, FORWARD, INFERENCE, PREFILL
from kernel_recorder.nsys_profile import TORCH, gpu_is_visible, profiler_of_this_machine
from kernel_tables.errors import TraceError
from kernel_tables.ranks.ranks import COMMUNICATION
from kernel_tables.trace import Trace

PROGRAMS = ROOT / "tests" / "kernel_recorder" / "programs"
LARGER_PROGRAMS = Path(__file__).with_name("programs")
SIZE = "large" if gpu_is_visible() else "small"
LIMIT_S = 240


@dataclass(frozen=True)
class Program:
    """A file with its arguments. The run under torch.profiler is called the truth."""

    file: str
    arguments: tuple[str, ...] = ()
    step: str = "optimizer"  # what ends a step in the truth: an optimizer or a module; "": counts are not compared
    by: str | None = None  # the profiler, if not that of the machine
    needs: str | None = None  # a package
    needs_gpu: bool = False
    truth: tuple[str, ...] | None = None  # the arguments of the truth, if they differ
    folder: Path = PROGRAMS
    ranks: int = 1

    @property
    def name(self) -> str:
        return " ".join([self.file, *self.arguments])

    @property
    def start(self) -> list[str]:
        """The command before a Python file or before `-m MODULE`."""
        several = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(self.ranks)]
        return [sys.executable] if self.ranks == 1 else [*PYTHON, *several]


ALL = [
    Program("nanogpt"),
    Program("convolutional"),
    Program("gan"),
    Program("lstm"),
    Program("closure", ("sgd",)),
    Program("closure", ("lbfgs",)),
    Program("generate", step="module"),
    Program("compiled", ("inductor",)),
    Program("compiled", ("inductor", "8")),
    Program("compiled", ("inductor", "99", "inference"), step="module"),
    Program("failing"),
    Program("own_profiler", ("late",), step="", by=TORCH),
    Program("recorded_inside", step="", by=TORCH),
    Program("replayed", needs_gpu=True, truth=("eager",)),
    Program("hugging_face", needs="accelerate"),
    Program("hugging_face_generate", step="module", needs="transformers"),
    Program("lightning_fit", needs="pytorch_lightning"),
    Program("gpt", (SIZE,), folder=LARGER_PROGRAMS),
    Program("llama", (SIZE,), needs="transformers", folder=LARGER_PROGRAMS),
    Program("loader_and_graph", (SIZE,), folder=LARGER_PROGRAMS),
    Program("gpt_ranks", (SIZE, "ddp"), folder=LARGER_PROGRAMS, ranks=2),
    Program("gpt_ranks", (SIZE, "fsdp"), folder=LARGER_PROGRAMS, ranks=2),
]
PHASES = {
    "forward": (FORWARD, INFERENCE, PREFILL, DECODE), "backward": ("backward",), "optimizer": ("Optimizer.step#",),
}  # fmt: skip
COUNTED = (*PHASES, COMMUNICATION, "all")
COLUMNS = ("program", "by", "same as plain run", *(f"{phase}, ÷" for phase in COUNTED))


def main(programs: list[str] = [], *, jobs: int = 4, keep: Path | None = None) -> int:  # noqa: B006 (the harness reads it)
    """Prints a row for each program, and returns 1 if any fails, else 0."""
    chosen = [program for program in ALL if not programs or program.file in programs]
    print_row(*COLUMNS, "problems", heading=True)
    failures = 0
    with ThreadPoolExecutor(jobs) as pool:
        for row in pool.map(lambda program: compared(program, keep), chosen):
            print_row(*row)
            failures += row[-1] not in ("", None) and not str(row[-1]).startswith("left out")
    return min(failures, 1)


def compared(program: Program, keep: Path | None) -> list:
    """The row of a program."""
    if why := why_left_out(program):
        return [program.name, *[None] * (len(COLUMNS) - 1), f"left out: {why}"]
    profiler = program.by or profiler_of_this_machine()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        capture = folder / "capture.sqlite"
        record = ["kernel_tables", "record", "--profiler", profiler, "-o", str(capture), "--", *program.start]
        plain = ran(program, folder / "plain", program.start)
        recorded = ran(program, folder / "recorded", [*PYTHON, *record])
        problems = [] if outcome(plain) == outcome(recorded) else ["output or status differ"]
        ratios: list = [None] * len(COUNTED)
        if not capture.exists():
            problems.append((recorded.stderr.strip().splitlines() or ["nothing was recorded"])[-1])
        elif program.step:
            try:
                ratios, differences = against_truth(program, capture, folder)
            except TraceError as error:
                differences = [str(error)]
            problems += differences
        if keep:
            keep_run(program, capture, plain, recorded, keep)
    return [
        program.name,
        profiler,
        "yes" if outcome(plain) == outcome(recorded) else "NO",
        *ratios,
        "; ".join(problems),
    ]


def why_left_out(program: Program) -> str | None:
    if program.needs and find_spec(program.needs) is None:
        return f"{program.needs} is not installed"
    return "there is no GPU" if program.needs_gpu and not gpu_is_visible() else None


def ran(program: Program, folder: Path, start: list[str]) -> subprocess.CompletedProcess:
    """The program, run in an empty folder."""
    folder.mkdir()
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(paths), "KINETO_LOG_LEVEL": "99",
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),  # no run finds what an earlier one compiled
    }  # fmt: skip
    command = [*start, str(program.folder / f"{program.file}.py"), *program.arguments]
    options = {"cwd": folder, "env": environment, "capture_output": True, "text": True, "check": False}
    try:
        return subprocess.run(command, timeout=LIMIT_S, **options)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", f"took longer than {LIMIT_S} s")


def outcome(done: subprocess.CompletedProcess) -> tuple[str, int]:
    return done.stdout, done.returncode


def against_truth(program: Program, capture: Path, folder: Path) -> tuple[list[float | None], list[str]]:
    """The times of phases divided by torch.profiler's, of rank 0; and where counts of kernels differ on any rank."""
    path = folder / "truth.json"
    arguments = [str(path), program.step, str(DEFAULT_SKIP), str(DEFAULT_STEPS)]
    program = program if program.truth is None else replace(program, arguments=program.truth)
    done = ran(program, folder / "truth", [*program.start, "-m", "benchmarks.programs.in_phases", *arguments])
    ratios, differences = [None] * len(COUNTED), []
    for rank in reversed(range(program.ranks)):  # rank 0 last: its ratios are returned
        of_rank = f" of rank {rank}" if program.ranks > 1 else ""
        written = file_of_rank(path, rank)
        if not written.exists():
            return ratios, [f"no truth{of_rank}: {(done.stderr.strip().splitlines() or ['?'])[-1]}"]
        truth, recorded = json.loads(written.read_text()), dict(phases(file_of_rank(capture, rank)))
        differences += [
            f"{phase}{of_rank} has {recorded[phase]['kernels']} kernels, torch.profiler {truth[phase]['kernels']}"
            for phase in COUNTED
            if recorded[phase]["kernels"] != truth[phase]["kernels"]
        ]
        ratios = [recorded[phase]["ms"] / truth[phase]["ms"] if truth[phase]["ms"] else None for phase in COUNTED]
    return ratios, differences


def phases(capture: Path) -> Iterator[tuple[str, dict[str, float]]]:
    """The number of kernels and their milliseconds, of each phase, of communication and of all steps."""
    with Trace(capture) as trace:
        tree, classes = trace.range_tree(), trace.classes("step")
    below_step = tree[(tree["depth"] == 1) & tree["range"].str.startswith("step > ")]
    names = below_step["range"].str.removeprefix("step > ")
    for phase, beginnings in PHASES.items():
        yield phase, counted(below_step[names.str.startswith(beginnings)])
    yield COMMUNICATION, counted(classes[classes["class"] == COMMUNICATION], "launches", "total_ns")
    yield "all", counted(tree[tree["range"] == "step"])


def counted(rows: pd.DataFrame, kernels: str = "kernels", time_ns: str = "gpu_time_ns") -> dict[str, float]:
    return {"kernels": int(rows[kernels].sum()), "ms": rows[time_ns].sum() / 1e6}


def keep_run(
    program: Program, capture: Path, plain: subprocess.CompletedProcess, recorded: subprocess.CompletedProcess, to: Path
) -> None:
    to.mkdir(parents=True, exist_ok=True)
    name = program.name.replace(" ", "_")
    (to / f"{name}.txt").write_text("\n".join([plain.stdout, plain.stderr, recorded.stdout, recorded.stderr]))
    for path in capture.parent.glob("capture*.sqlite"):
        shutil.copy(path, to / path.name.replace("capture", name))


if __name__ == "__main__":
    run(main)
