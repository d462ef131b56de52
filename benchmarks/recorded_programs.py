"""Records typical programs and compares them with plain runs: `python -m benchmarks.recorded_programs [nanogpt ...]`.

The PROGRAMS run twice, plainly and recorded: by nsys, without it or if PROGRAMS says so by PyTorch's profiler. Their
standard output and exit status must be equal; most programs print a digest of their weights and random state. Those
that have a `step` in PROGRAMS run a third time, under torch.profiler with ranges around their phases
(benchmarks/programs/in_phases.py): six steps and each phase must have as many kernels as it counts, on every rank.
Without a GPU, the larger programs are small. The exit status is 1 if anything differs.

--jobs programs run at once. --keep FOLDER keeps captures and outputs.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
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

PROGRAMS_FOLDER = ROOT / "tests" / "kernel_recorder" / "programs"
LARGER_FOLDER = Path(__file__).with_name("programs")
SIZE = "large" if gpu_is_visible() else "small"
LIMIT_S = 240


@dataclass(frozen=True)
class Program:
    """A file with its arguments. Its run under torch.profiler, if there is one, is the reference."""

    file: str
    arguments: tuple[str, ...] = ()
    # When a step begins or ends in the reference: it ends when an "optimizer" has stepped, or begins when a "module" is
    # called. "": there is no reference.
    step: str = "optimizer"
    profiler: str | None = None  # None: the one that this machine has
    package: str | None = None  # a package that the program needs
    needs_gpu: bool = False
    reference_arguments: tuple[str, ...] | None = None  # of the reference; None: the same arguments
    folder: Path = PROGRAMS_FOLDER
    ranks: int = 1

    @property
    def name(self) -> str:
        return " ".join([self.file, *self.arguments])

    @property
    def start(self) -> list[str]:
        """The beginning of the command: Python, or torchrun for several ranks. A file or `-m MODULE` follows."""
        if self.ranks == 1:
            return [sys.executable]
        return [*PYTHON, "torch.distributed.run", "--standalone", "--nproc-per-node", str(self.ranks)]


PROGRAMS = [
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
    Program("own_profiler", ("late",), step="", profiler=TORCH),
    Program("recorded_inside", step="", profiler=TORCH),
    Program("replayed", needs_gpu=True, reference_arguments=("eager",)),
    Program("hugging_face", package="accelerate"),
    Program("hugging_face_generate", step="module", package="transformers"),
    Program("lightning_fit", package="pytorch_lightning"),
    Program("gpt", (SIZE,), folder=LARGER_FOLDER),
    Program("llama", (SIZE,), package="transformers", folder=LARGER_FOLDER),
    Program("loader_and_graph", (SIZE,), folder=LARGER_FOLDER),
    Program("gpt_ranks", (SIZE, "ddp"), folder=LARGER_FOLDER, ranks=2),
    Program("gpt_ranks", (SIZE, "fsdp"), folder=LARGER_FOLDER, ranks=2),
]
PHASES = {  # in a recording, the beginnings of the names of their ranges
    "forward": (FORWARD, INFERENCE, PREFILL, DECODE), "backward": ("backward",), "optimizer": ("Optimizer.step#",),
}  # fmt: skip
GROUPS = (*PHASES, COMMUNICATION, "all")  # of kernels, which are compared
COLUMNS = ("program", "by", "same as plain run", *(f"{group}, ÷" for group in GROUPS))


def main(programs: list[str] = [], *, jobs: int = 4, keep: Path | None = None) -> int:  # noqa: B006 (the harness reads it)
    """Prints a row for each program, and returns 1 if any fails, else 0."""
    chosen = [program for program in PROGRAMS if not programs or program.file in programs]
    print_row(*COLUMNS, "problems", heading=True)
    failures = 0
    with ThreadPoolExecutor(jobs) as pool:
        comparisons = pool.map(lambda program: compare(program, keep), chosen)
        for program, (row, problems) in zip(chosen, comparisons, strict=True):
            omission = omission_reason(program)
            print_row(*row, f"left out: {omission}" if omission else "; ".join(problems))
            failures += bool(problems)
    return min(failures, 1)


def compare(program: Program, keep: Path | None) -> tuple[list, list[str]]:
    """(the values of COLUMNS for a program, its problems); only the name, and no problems, if it is left out."""
    if omission_reason(program):
        return [program.name, *[None] * (len(COLUMNS) - 1)], []
    profiler = program.profiler or profiler_of_this_machine()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        capture = folder / "capture.sqlite"
        record = ["kernel_tables", "record", "--profiler", profiler, "-o", str(capture), "--", *program.start]
        plain = run_program(program, folder / "plain", program.start)
        recorded = run_program(program, folder / "recorded", [*PYTHON, *record])
        is_same = (plain.stdout, plain.returncode) == (recorded.stdout, recorded.returncode)
        problems = [] if is_same else ["output or status differ"]
        ratios: list = [None] * len(GROUPS)
        if not capture.exists():
            problems.append((recorded.stderr.strip().splitlines() or ["nothing was recorded"])[-1])
        elif program.step:
            try:
                ratios, differences = compare_with_reference(program, capture, folder)
            except TraceError as error:
                differences = [str(error)]
            problems += differences
        if keep:
            keep_run(program, capture, [plain, recorded], keep)
    return [program.name, profiler, "yes" if is_same else "NO", *ratios], problems


def omission_reason(program: Program) -> str | None:
    """Why a program is left out on this machine; None if it is not."""
    if program.package and find_spec(program.package) is None:
        return f"{program.package} is not installed"
    return "there is no GPU" if program.needs_gpu and not gpu_is_visible() else None


def run_program(program: Program, folder: Path, start: list[str]) -> subprocess.CompletedProcess:
    """Runs the program in an empty folder, by a command that begins with `start`."""
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


def compare_with_reference(program: Program, capture: Path, folder: Path) -> tuple[list[float | None], list[str]]:
    """(of rank 0, the times of GROUPS in the recording ÷ those under torch.profiler; of all ranks, the numbers of
    kernels that differ, in words)."""
    path = folder / "reference.json"
    arguments = [str(path), program.step, str(DEFAULT_SKIP), str(DEFAULT_STEPS)]
    if program.reference_arguments is not None:
        program = replace(program, arguments=program.reference_arguments)
    start = [*program.start, "-m", "benchmarks.programs.in_phases", *arguments]
    process = run_program(program, folder / "reference", start)
    ratios, differences = [None] * len(GROUPS), []
    for rank in reversed(range(program.ranks)):  # rank 0 last: its ratios are returned
        of_rank = f" of rank {rank}" if program.ranks > 1 else ""
        rank_path = file_of_rank(path, rank)
        if not rank_path.exists():
            return ratios, [f"no reference{of_rank}: {(process.stderr.strip().splitlines() or ['?'])[-1]}"]
        reference, recorded = json.loads(rank_path.read_text()), kernel_groups(file_of_rank(capture, rank))
        differences += [
            f"{group}{of_rank} has {recorded[group]['kernels']} kernels, torch.profiler {reference[group]['kernels']}"
            for group in GROUPS
            if recorded[group]["kernels"] != reference[group]["kernels"]
        ]
        times_ms = [(recorded[group]["ms"], reference[group]["ms"]) for group in GROUPS]
        ratios = [ms / reference_ms if reference_ms else None for ms, reference_ms in times_ms]
    return ratios, differences


def kernel_groups(capture: Path) -> dict[str, dict[str, float]]:
    """By group, the number of kernels in a recording and their milliseconds."""
    with Trace(capture) as trace:
        tree, classes = trace.range_tree(), trace.classes("step")
    below_step = tree[(tree["depth"] == 1) & tree["range"].str.startswith("step > ")]
    names = below_step["range"].str.removeprefix("step > ")
    communication = classes[classes["class"] == COMMUNICATION]
    return {phase: totals(below_step[names.str.startswith(beginnings)]) for phase, beginnings in PHASES.items()} | {
        COMMUNICATION: totals(communication, "launches", "total_ns"), "all": totals(tree[tree["range"] == "step"]),
    }  # fmt: skip


def totals(rows: pd.DataFrame, count_column: str = "kernels", time_ns_column: str = "gpu_time_ns") -> dict[str, float]:
    return {"kernels": int(rows[count_column].sum()), "ms": rows[time_ns_column].sum() / 1e6}


def keep_run(program: Program, capture: Path, processes: list[subprocess.CompletedProcess], folder: Path) -> None:
    """Writes the outputs of both runs, and copies the captures, into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    name = program.name.replace(" ", "_")
    outputs = [text for process in processes for text in (process.stdout, process.stderr)]
    (folder / f"{name}.txt").write_text("\n".join(outputs))
    for path in capture.parent.glob("capture*.sqlite"):
        shutil.copy(path, folder / path.name.replace("capture", name))


if __name__ == "__main__":
    run(main)
