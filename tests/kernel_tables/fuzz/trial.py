"""One damaged capture: how it is made, what commands do with it, and what of that must not be."""

from __future__ import annotations

import csv
import io
import json
import resource
import shutil
import signal
import sys
import time
import traceback
import unicodedata
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from random import Random

from kernel_tables import __main__ as command_line
from kernel_tables.errors import TraceError
from kernel_tables.reading.publishable import write_publishable
from tests.kernel_tables.fuzz.damage import DAMAGES
from tests.kernel_tables.fuzz.oracle import objection

csv.field_size_limit(1 << 30)  # a name may be long
COMMANDS = ("ranges", "kernels", "classes", "check", "trace")
OTHERS = (  # of which every trial tries one: they stand on what those above read
    ("diagnose",),
    ("diff", "--all"),
    ("host",),
    ("host", "--by", "range"),
    ("communication",),
    ("communication", "--collectives"),
    ("report",),
)
MEMORY_ALLOWED_BYTES = 2 << 30
TIME_LIMIT_S = 20  # of the processor: a busy machine makes no trial hang
DAMAGE = ("SQLite", "quick_check")  # how the reference begins to speak of a damaged file
REFUSED, FIGURES = "refused", "figures"


@dataclass
class Trial:
    """What came of one capture; `faults` is empty where all held that has to."""

    number: int
    capture: str
    damages: list[str]
    objection: str | None
    outcome: str = ""
    check_status: int | None = None
    seconds: float = 0.0  # of the processor
    more_memory_mib: int = 0  # than any trial before it in its process
    faults: list[str] = field(default_factory=list)

    def as_json(self) -> str:
        return json.dumps(asdict(self))


@dataclass
class Run:
    status: int | None
    output: bytes
    said: str
    crash: str = ""


def try_one(number: int, seed: int, captures: list[Path], folder: Path) -> Trial:
    """Trial NUMBER of those of SEED: the same at any time."""
    random = Random(f"{seed}/{number}")
    path, capture, damages = damaged(random, captures, folder)
    trial = Trial(number, capture.name, damages, objection(path))
    before, memory_before, began_s = path.read_bytes(), _peak_bytes(), time.process_time()
    for command in COMMANDS:
        table_format = random.choice(("csv", "csv", "md", "json", "parquet")) if command != "trace" else "json"
        done = run(command, path, folder, table_format)
        trial.faults += [
            f"{command} --format {table_format}: {fault}" for fault in faults(command, done, trial, table_format)
        ]
        if command == "kernels":
            trial.outcome = FIGURES if done.status == 0 else REFUSED
        if command == "check":
            trial.check_status = done.status
    trial.faults += _faults_of_other(random.choice(OTHERS), path, capture, folder, trial)
    trial.faults += _faults_of_copy(path, folder / "published.sqlite", trial)
    if path.read_bytes() != before:
        trial.faults.append("the capture was changed")
    trial.seconds = time.process_time() - began_s
    trial.more_memory_mib = (_peak_bytes() - memory_before) >> 20
    if trial.more_memory_mib << 20 > MEMORY_ALLOWED_BYTES + len(before):
        trial.faults.append(f"{trial.more_memory_mib} MiB of memory")
    return trial


def damaged(random: Random, captures: list[Path], folder: Path) -> tuple[Path, Path, list[str]]:
    """The damaged copy, what it is a copy of, and the names of what was done to it."""
    small, whole = captures[:-3], captures[-3:]
    capture = random.choice(whole) if random.random() < 0.02 else random.choice(small)
    path = folder / "capture.sqlite"
    shutil.copyfile(capture, path)
    names = [random.choice(list(DAMAGES)) for _ in range(random.choice((1, 1, 1, 2)))]
    for name in names:
        try:
            DAMAGES[name](path, random)
        except (IndexError, ValueError):  # an earlier damage left nothing to do this to
            names = [*names, f"({name} could not be done)"]
    return path, capture, names


def run(command: str, path: Path, folder: Path, table_format: str) -> Run:
    """The command in this process, with its standard output and error."""
    target = folder / "trace.json"
    options = ["-o", str(target)] if command == "trace" else ["--format", table_format]
    return _run([command, str(path), *options], target)


def _run(arguments: list[str], target: Path) -> Run:
    """What became of these arguments; TARGET is a file that they may write."""
    output, said = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    target.unlink(missing_ok=True)
    with redirect_stdout(output), redirect_stderr(said):
        try:
            status, crash = command_line.main(arguments), ""
        except BaseException:
            status, crash = None, traceback.format_exc(limit=-4)
    written = target.read_bytes() if target.exists() else b""
    return Run(status, output.buffer.getvalue() + written, said.getvalue(), crash)


def faults(command: str, done: Run, trial: Trial, table_format: str) -> list[str]:
    if done.crash:
        return [f"traceback: {done.crash}"]
    allowed = (0, 1, 2) if command == "check" else (0, 2)
    if done.status not in allowed:
        return [f"status {done.status}"]
    if done.status == 2:
        return _faults_of_refusal(done)
    found = [f"standard error: {done.said[:200]}"] if done.said else []
    if trial.objection and not (command == "check" and done.status == 1):
        found.append(f"status {done.status} in spite of {trial.objection}")
    if command == "trace":
        return found + _faults_of_trace(done.output)
    return found + {"csv": _faults_of_csv, "json": _faults_of_json}.get(table_format, lambda _: [])(done.output)


def _faults_of_other(command: tuple[str, ...], path: Path, whole: Path, folder: Path, trial: Trial) -> list[str]:
    """What is wrong with one of OTHERS; `diff` holds the capture against what it was before it was damaged."""
    name, *options = command
    target = folder / "page.html"
    files = [str(path), *([str(whole)] if name == "diff" else []), *(["-o", str(target)] if name == "report" else [])]
    done = _run([name, *files, *options], target)
    if done.crash:
        found = [f"traceback: {done.crash}"]
    elif done.status == 2:
        found = _faults_of_refusal(done)
    else:
        found = [] if done.status in ((0, 1) if name == "diff" else (0,)) else [f"status {done.status}"]
        found += ["control characters"] if _has_control((done.output.decode() + done.said).replace("\n", "")) else []
        found += [f"status {done.status} in spite of {trial.objection}"] if trial.objection else []
    return [f"{' '.join(command)}: {fault}" for fault in found]


def _faults_of_copy(path: Path, copy: Path, trial: Trial) -> list[str]:
    """What is wrong with the copy that may be published: one of a damaged file is not made, and none is damaged."""
    copy.unlink(missing_ok=True)
    try:
        write_publishable(path, copy)
    except TraceError as error:
        return ["write_publishable: not one line"] if "\n" in str(error) else []
    except Exception:
        return [f"write_publishable: traceback: {traceback.format_exc(limit=-4)}"]
    damage = [against for against in (trial.objection, objection(copy)) if against and against.startswith(DAMAGE)]
    return [f"write_publishable: a copy in spite of {damage}"] if damage else []


def _faults_of_refusal(done: Run) -> list[str]:
    found = [] if not done.output else ["output beside a refusal"]
    line = done.said.removesuffix("\n")
    if not line.startswith("kernel-tables: ") or _has_control(line):
        found.append(f"not one line: {done.said[:300]!r}")
    return found


def _faults_of_csv(output: bytes) -> list[str]:
    text = output.decode()
    found = ["control characters"] if _has_control(text.replace("\n", "")) else []
    header, *rows = csv.reader(io.StringIO(text))
    found += [f"a row of {len(row)} cells" for row in rows if len(row) != len(header)][:1]
    if len(rows) != text.count("\n") - 1:
        found.append("a row of several lines")
    cells = [(name, cell) for row in rows for name, cell in zip(header, row, strict=False)]
    found += [f"a formula: {cell!r}" for _, cell in cells if cell[:1] in tuple("=+-@") and cell][:1]
    found += [f"{name} is {cell}" for name, cell in cells if name.endswith("_ns") and cell.startswith("-")][:1]
    shares = [float(cell) for name, cell in cells if name == "share_of_gpu_time"]
    return found + ([f"shares {shares}"] if shares and not 0.999 < sum(shares) < 1.001 and any(shares) else [])


def _faults_of_json(output: bytes) -> list[str]:
    text = output.decode()
    json.loads(text)
    return ["control characters"] if _has_control(text.replace("\n", "")) else []


def _faults_of_trace(output: bytes) -> list[str]:
    events = json.loads(output)["traceEvents"]
    return [f"a slice of {event['dur']} us" for event in events if event["ph"] == "X" and event["dur"] < 0][:1]


def _has_control(text: str) -> bool:
    return any(unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") or c in "\u202e\u2066" for c in text)


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def serve() -> None:
    """Answers each line of standard input, `SEED NUMBER`, by a line of JSON, until there is none."""
    # made anew by each command, the parser takes a quarter of all
    command_line.command_parser = cache(command_line.command_parser)
    folder, answers = Path(sys.argv[1]), sys.stdout
    captures = [Path(line) for line in sys.argv[2:]]
    for line in sys.stdin:
        seed, number = map(int, line.split())
        signal.setitimer(signal.ITIMER_PROF, TIME_LIMIT_S)  # whose signal ends this process
        print(try_one(number, seed, captures, folder).as_json(), file=answers, flush=True)


if __name__ == "__main__":
    serve()
