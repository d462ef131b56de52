"""Records typical programs and compares them with plain runs: `python -m benchmarks.recorded_programs [nanogpt ...]`.

Each program of tests/kernel_recorder/programs and benchmarks/programs runs three times: plainly, recorded by nsys
(without it by PyTorch's profiler), and under torch.profiler with ranges around its phases
(benchmarks/programs/in_phases.py). Without a GPU, the larger programs are small. The output, the
exit status, the weights and the random state of the first two must be equal; six steps and each phase
must have as many kernels as torch.profiler counts. The exit status is 1 if anything differs.

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

from benchmarks.harness import PYTHON, ROOT, print_row, run
from kernel_recorder.gpu import TORCH, gpu_is_visible, profiler_of_this_machine
from kernel_recorder.in_process.passes import DECODE, FORWARD, INFERENCE, PREFILL
from kernel_recorder.in_process.settings import DEFAULT_SKIP, DEFAULT_STEPS
from kernel_tables.errors import TraceError
from kernel_tables.trace import Trace

PROGRAMS = ROOT / "tests" / "kernel_recorder" / "programs"
LARGER_PROGRAMS = Path(__file__).with_name("programs")
SIZE = "large" if gpu_is_visible() else "small"
LIMIT_S = 240


@dataclass(frozen=True)
class Program:
    """A file with its arguments; what ends a step in the run by torch.profiler; `by` a profiler other than the
    machine's; the arguments of the run by torch.profiler, if they differ."""

    file: str
    arguments: tuple[str, ...] = ()
    step: str = "optimizer"
    by: str | None = None
    needs: str | None = None  # a package
    needs_gpu: bool = False
    truth: tuple[str, ...] | None = None
    folder: Path = PROGRAMS

    @property
    def name(self) -> str:
        return " ".join([self.file, *self.arguments])


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
]
COLUMNS = (
    "program",
    "by",
    "same as plainly",
    *(f"{phase}, ÷" for phase in ("forward", "backward", "optimizer", "all")),
)
PHASES = {
    "forward": (FORWARD, INFERENCE, PREFILL, DECODE), "backward": ("backward",), "optimizer": ("Optimizer.step#",),
}  # fmt: skip


def main(programs: list[str] = [], *, jobs: int = 4, keep: Path | None = None) -> int:  # noqa: B006 (the harness reads it)
    """Prints a row for each program, and returns how many of them fail, 1 at most."""
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
        record = ["kernel_tables", "record", "--profiler", profiler, "-o", str(capture), "--", sys.executable]
        plain = ran(program, folder / "plain", [sys.executable])
        recorded = ran(program, folder / "recorded", [*PYTHON, *record])
        problems = [] if outcome(plain) == outcome(recorded) else ["output or status differ"]
        ratios: list = [None] * 4
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
    """The times of phases divided by torch.profiler's; and where the counts of kernels differ."""
    path = folder / "truth.json"
    numbers = [str(path), program.step, str(DEFAULT_SKIP), str(DEFAULT_STEPS)]
    program = program if program.truth is None else replace(program, arguments=program.truth)
    done = ran(program, folder / "truth", [*PYTHON, "benchmarks.programs.in_phases", *numbers])
    if not path.exists():
        return [None] * 4, [f"no truth: {(done.stderr.strip().splitlines() or ['?'])[-1]}"]
    truth, recorded = json.loads(path.read_text()), dict(phases(capture))
    differences = [
        f"{phase} has {recorded[phase]['kernels']} kernels, torch.profiler {truth[phase]['kernels']}"
        for phase in (*PHASES, "all")
        if recorded[phase]["kernels"] != truth[phase]["kernels"]
    ]
    ratios = [recorded[phase]["ms"] / truth[phase]["ms"] if truth[phase]["ms"] else None for phase in (*PHASES, "all")]
    return ratios, differences


def phases(capture: Path) -> Iterator[tuple[str, dict[str, float]]]:
    """The number of kernels and their milliseconds, of each phase and of all steps."""
    with Trace(capture) as trace:
        tree = trace.range_tree()
    below_step = tree[(tree["depth"] == 1) & tree["range"].str.startswith("step > ")]
    names = below_step["range"].str.removeprefix("step > ")
    for phase, beginnings in PHASES.items():
        rows = below_step[names.str.startswith(beginnings)]
        yield phase, {"kernels": int(rows["kernels"].sum()), "ms": rows["gpu_time_ns"].sum() / 1e6}
    step = tree[tree["range"] == "step"]
    yield "all", {"kernels": int(step["kernels"].sum()), "ms": step["gpu_time_ns"].sum() / 1e6}


def keep_run(
    program: Program, capture: Path, plain: subprocess.CompletedProcess, recorded: subprocess.CompletedProcess, to: Path
) -> None:
    to.mkdir(parents=True, exist_ok=True)
    name = program.name.replace(" ", "_")
    (to / f"{name}.txt").write_text("\n".join([plain.stdout, plain.stderr, recorded.stdout, recorded.stderr]))
    if capture.exists():
        shutil.copy(capture, to / f"{name}.sqlite")


if __name__ == "__main__":
    run(main)
