"""What the commands say of every committed capture and trace: kernels, ranges, classes, completeness, findings."""

import csv
import gzip
import io
import math
from pathlib import Path

import pytest

from kernel_tables.__main__ import main

CAPTURES = Path(__file__).parents[1] / "captures"
GOLDEN = Path(__file__).parent / "captures"
FILES = sorted([*CAPTURES.rglob("*.sqlite.gz"), *CAPTURES.rglob("*.json.gz")])
PLANTED = [path for path in FILES if path.parent.name == "planted"]
KEYS = {  # by command: its frozen file, and the columns that name a row
    "kernels": ("kernels.csv.gz", ["range", "kernel", "class"]),
    "ranges": ("ranges.csv", ["range"]),
    "classes": ("classes.csv", ["class"]),
    "check": ("check.csv", ["severity", "code"]),
    "diagnose": ("findings.csv", ["code"]),
}
RENAMED: dict[str, str] = {}  # frozen name of a column: its name in the output now
NOT_FROZEN = {"check": ["message"]}  # columns with sentences
FINDING = ["code", "gain_ms", "gain_percent"]
FAILING = {("tiny_2022.4.2", "check"): 1}  # exit statuses other than 0: nsys 2022.4.2 recorded no kernel


def name_of(capture: Path) -> str:
    return capture.name.removesuffix(".gz").removesuffix(".sqlite").removesuffix(".json")


def read_frozen(command: str) -> list[dict[str, str]]:
    content = (GOLDEN / KEYS[command][0]).read_bytes()
    text = (gzip.decompress(content) if KEYS[command][0].endswith(".gz") else content).decode()
    return list(csv.DictReader(io.StringIO(text)))


def run_command(command: str, capture: Path, folder: Path) -> list[dict[str, str]]:
    """The rows that a command writes as CSV; of findings only those that are reported."""
    output = folder / f"{command}.csv"
    status = main([command, str(capture), "--format", "csv", "--output", str(output)])
    assert status == FAILING.get((name_of(capture), command), 0)
    with output.open(newline="") as file:
        rows = list(csv.DictReader(file))
    if command == "diagnose":
        rows = [{column: row[column] for column in FINDING} for row in rows if row["abstained"] == "False"]
    return [{column: row[column] for column in row if column not in NOT_FROZEN.get(command, [])} for row in rows]


def is_same(frozen: str, now: str) -> bool:
    """Whether two cells are equal: integers and texts exactly, other numbers to the ninth digit."""
    if frozen == now or "." not in frozen:
        return frozen == now
    try:
        return math.isclose(float(frozen), float(now), rel_tol=1e-9)
    except ValueError:
        return False


def differences(command: str, frozen: list[dict[str, str]], now: list[dict[str, str]]) -> list[str]:
    """What differs, a line each. Further columns are allowed."""
    keys = KEYS[command][1]
    columns = [*keys, *(column for column in next(iter(frozen), {}) if column not in (*keys, "capture"))]
    before = sorted([row[column] for column in columns] for row in frozen)
    after = sorted([row[RENAMED.get(column, column)] for column in columns] for row in now)
    found = [] if len(before) == len(after) else [f"{len(before)} rows were frozen, there are {len(after)}"]
    for old, new in zip(before, after, strict=False):
        wrong = [f"{name}: {a} -> {b}" for name, a, b in zip(columns, old, new, strict=True) if not is_same(a, b)]
        found += [f"{old[: len(keys)]}: {', '.join(wrong)}"] if wrong else []
    return found


@pytest.fixture(scope="module")
def frozen() -> dict[str, dict[str, list[dict[str, str]]]]:
    """By command and capture, the frozen rows."""
    rows = {command: {name_of(path): [] for path in FILES} for command in KEYS}
    for command, by_capture in rows.items():
        for row in read_frozen(command):
            by_capture[row["capture"]].append(row)
    return rows


@pytest.mark.parametrize("capture", FILES, ids=name_of)
@pytest.mark.parametrize("command", ["kernels", "ranges", "classes", "check"])
def test_the_table_of_a_capture_has_the_frozen_rows(command, capture, frozen, tmp_path):
    expected = frozen[command][name_of(capture)]
    assert differences(command, expected, run_command(command, capture, tmp_path))[:5] == []


@pytest.mark.parametrize("capture", PLANTED, ids=name_of)
def test_the_findings_of_a_planted_capture_and_their_gains_are_the_frozen_ones(capture, frozen, tmp_path):
    found = run_command("diagnose", capture, tmp_path)
    assert differences("diagnose", frozen["diagnose"][name_of(capture)], found) == []


def test_every_capture_and_every_table_is_frozen(frozen):
    empty = {(command, name) for command in ("kernels", "ranges", "classes") for name in frozen[command]}
    empty -= {(command, name) for command, rows in frozen.items() for name in rows if rows[name]}
    assert empty == {("kernels", "tiny_2022.4.2"), ("classes", "tiny_2022.4.2")}
    unfound = {"clean", "low_occupancy", "wave_tail", "casts", "unfused_elementwise", "unsteady_steps"}
    assert {name for name, rows in frozen["diagnose"].items() if rows} == {*map(name_of, PLANTED)} - unfound
