"""The command: formats, files, exit statuses, and what it does with bad input."""

import gzip
import hashlib
import io
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from kernel_tables import __main__ as entry
from kernel_tables.commands.shared import say_rank
from tests.kernel_tables.command import run_command as run
from tests.kernel_tables.synthetic import Synthetic

CAPTURES = Path(__file__).parent.parent / "captures"
REPOSITORY = CAPTURES.parent.parent
NAME = "void f<int, *>(T1 *, a|b, _x_)"


@pytest.fixture
def capture(tmp_path) -> Path:
    made = Synthetic().range("measure", 0, 100).range("step", 10, 50).kernel(NAME, at=20).kernel("gemm", at=None)
    return made.write(tmp_path / "capture.sqlite")


def refused(*arguments, environment: dict | None = None) -> str:
    """The one line on standard error of a command that ends with status 2 and prints nothing."""
    done = run(*arguments, environment=environment)
    assert (done.returncode, done.stdout) == (2, b"")
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith("kernel-tables: ")
    return line


def test_csv_goes_to_standard_output_and_nothing_else_does(capture):
    done = run("ranges", capture)
    assert done.stderr == b""
    assert done.stdout.decode().splitlines() == [
        "range,instances,kernels,gpu_time_ns,memops,memop_time_ns",
        "(launched before the capture),0,1,10,0,0",
        "measure,1,1,10,0,0",
        "step,1,1,10,0,0",
    ]


def test_every_format_holds_the_same_table(capture, tmp_path):
    tables = {}
    for suffix in ("csv", "json", "parquet"):
        path = tmp_path / f"table.{suffix}"
        assert run("kernels", capture, "-o", path).stdout == b""
        tables[suffix] = getattr(pd, f"read_{suffix}")(path)
        piped = run("kernels", capture, "--format", suffix).stdout
        assert piped == path.read_bytes()
    pd.testing.assert_frame_equal(tables["csv"], tables["parquet"], check_dtype=False)
    assert tables["json"]["kernel"].tolist() == tables["csv"]["kernel"].tolist() == ["gemm", NAME]
    assert pd.read_parquet(io.BytesIO(piped))["total_ns"].dtype == "int64"


def test_markdown_escapes_what_names_contain(capture):
    lines = run("kernels", capture, "--format", "md", "--under", "measure").stdout.decode().splitlines()
    assert lines[0] == "| range | kernel | class | launches | total_ns | mean_ns | min_ns | max_ns | std_ns |"
    assert lines[2].startswith(r"| measure \> step | void f\<int, \*\>(T1 \*, a\|b, \_x\_) |")


def test_a_class_of_ones_own_can_be_given_on_the_command_line(capture):
    table = run("classes", capture, "--class", r"attention=void f<").stdout.decode()
    assert "attention,1,1,10,0.5" in table


def test_check_ends_with_1_for_an_incomplete_capture_and_0_for_a_merely_odd_one(tmp_path):
    done = run("check", CAPTURES / "tiny_2022.4.2.sqlite.gz")
    assert done.returncode == 1
    assert [line.split(",")[:2] for line in done.stdout.decode().splitlines()] == [
        ["severity", "code"],
        ["error", "no_kernels"],
    ]
    odd = run("check", CAPTURES / "tiny_2024.2.3.sqlite.gz", "--steps", 3, "--format", "json")
    assert odd.returncode == 0
    assert [finding["severity"] for finding in json.loads(odd.stdout)] == ["warning"]


def test_help_is_answered_without_importing_anything_heavy():
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "kernel_tables", "--help"], cwd=REPOSITORY, capture_output=True
    )
    assert b"ranges" in done.stdout and done.returncode == 0
    imported = done.stderr.decode()
    assert not any(name in imported for name in ("numpy", "pandas", "pyarrow", "sqlite"))


def test_the_trace_holds_ranges_launches_kernels_with_their_paths_and_arrows(capture, tmp_path):
    path = tmp_path / "trace.json.gz"
    assert run("trace", capture, "-o", path).returncode == 0
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    slices = {(e["cat"], e["name"]): e for e in events if e["ph"] == "X"}
    ranges = {(kind, name) for kind in ("range", "range of a stream") for name in ("measure", "step")}
    assert set(slices) == ranges | {("launch", "cudaLaunchKernel"), ("kernel", NAME)}
    kernel = slices["kernel", NAME]
    assert (kernel["ts"], kernel["dur"]) == (0.025, 0.01)
    assert kernel["args"] == {"range": "measure > step", "class": "unknown", "device": 0}
    begin, end = (next(e for e in events if e["ph"] == phase) for phase in "sf")
    assert (begin["id"], begin["tid"], begin["ts"]) == (end["id"], slices["launch", "cudaLaunchKernel"]["tid"], 0.02)
    assert (end["tid"], end["ts"]) == (kernel["tid"], kernel["ts"])
    names = {e["args"]["name"] for e in events if e["ph"] == "M"}
    assert names == {"process 1", "thread 1", "GPU 0, stream 7", "GPU 0, stream 7: ranges"}


def test_a_capture_is_left_byte_for_byte_as_it_was(capture):
    before = hashlib.sha256(capture.read_bytes()).hexdigest(), capture.stat().st_mtime_ns, os.listdir(capture.parent)
    for command in ("ranges", "kernels", "classes", "check"):
        run(command, capture)
    after = hashlib.sha256(capture.read_bytes()).hexdigest(), capture.stat().st_mtime_ns, os.listdir(capture.parent)
    assert before == after


def test_a_gzipped_capture_is_read_as_it_is(capture, tmp_path):
    packed = tmp_path / "packed"  # known by its content, whatever its name
    packed.write_bytes(gzip.compress(capture.read_bytes()))
    assert run("kernels", packed).stdout == run("kernels", capture).stdout


def test_a_path_with_odd_characters_is_opened(capture, tmp_path):
    odd = tmp_path / "a b?c#d%20é.sqlite"
    odd.write_bytes(capture.read_bytes())
    assert run("ranges", odd).returncode == 0


def test_a_file_that_is_not_there_is_named(tmp_path):
    assert "nowhere.sqlite: no such file" in refused("ranges", tmp_path / "nowhere.sqlite")


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.sqlite")
    assert "not a file but a pipe or a device" in refused("ranges", tmp_path / "pipe.sqlite")


def test_a_folder_is_refused(tmp_path):
    assert "a folder, not a capture" in refused("ranges", tmp_path)


@pytest.mark.parametrize("content", [b"", b"SQLite", b"hello, world" * 50, b"\x1f\x8bnot gzip at all"])
def test_what_is_not_sqlite_is_refused(content, tmp_path):
    path = tmp_path / "capture.sqlite"
    path.write_bytes(content)
    assert str(path) in refused("check", path)


@pytest.mark.parametrize("kept", [0.2, 0.5, 0.999])
@pytest.mark.parametrize("packed", [False, True])
def test_a_capture_cut_off_in_the_middle_is_refused(kept, packed, tmp_path):
    content = (CAPTURES / "tiny_2025.3.1.sqlite.gz").read_bytes()
    content = content if packed else gzip.decompress(content)
    path = tmp_path / "capture.sqlite"
    path.write_bytes(content[: int(kept * len(content))])
    assert "cut off" in refused("kernels", path)


def test_damaged_pages_are_refused(tmp_path):
    content = bytearray(gzip.decompress((CAPTURES / "tiny_2025.3.1.sqlite.gz").read_bytes()))
    content[4096:] = b"\xff" * (len(content) - 4096)
    path = tmp_path / "capture.sqlite"
    path.write_bytes(content)
    assert "damaged" in refused("kernels", path)


def test_a_database_of_somebody_else_is_refused(tmp_path):
    path = tmp_path / "photos.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE photos (id INTEGER)")
    connection.close()
    assert "not of nsys: none of its tables is there (found: photos)" in refused("ranges", path)


def test_a_needed_column_that_is_missing_is_named_with_the_schema(tmp_path):
    capture = Synthetic().range("step", 0, 10).kernel("gemm", at=5)
    path = capture.write(tmp_path / "capture.sqlite", lacking=("CUPTI_ACTIVITY_KIND_KERNEL.correlationId",))
    line = refused("kernels", path)
    assert "table CUPTI_ACTIVITY_KIND_KERNEL has no column correlationId (schema 3.20.3)" in line


def test_an_export_that_is_still_being_written_is_refused(capture):
    capture.with_name("capture.sqlite-journal").write_bytes(b"pages")
    assert "its writer has not finished" in refused("ranges", capture)


def test_a_wrong_option_is_refused():
    assert run("ranges", "x.sqlite", "--format", "xml").returncode == 2
    assert "expected CLASS=REGEX" in refused("kernels", CAPTURES / "tiny_2025.3.1.sqlite.gz", "--class", "gemm")


def test_a_table_that_cannot_be_written_leaves_nothing_behind(capture, tmp_path):
    assert "no such folder" not in refused("ranges", capture, "-o", tmp_path / "missing" / "table.csv")
    old = tmp_path / "table.csv"
    old.write_text("old\n")
    refused("ranges", capture, "--under", "nothing", "-o", old)
    assert old.read_text() == "old\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["capture.sqlite", "table.csv"]


FAKE_NSYS = """#!{python}
import shutil, sys
if sys.argv[1] == "--version":
    print("NVIDIA Nsight Systems version 2025.3.1.90-253135822126v0")
    sys.exit()
assert sys.argv[1:4] == ["export", "--type", "sqlite"]
content = open(sys.argv[-1], "rb").read()
open(sys.argv[sys.argv.index("--output") + 1], "wb").write(content if {whole} else content[:5000])
sys.stderr.write("Importer error: the report is odd\\n")
sys.exit({status})
"""


def fake_nsys(folder: Path, status: int = 0, whole: bool = True) -> dict[str, str]:
    """The environment in which `nsys` is a program that "exports" a report by copying it."""
    program = folder / "bin" / "nsys"
    program.parent.mkdir()
    program.write_text(FAKE_NSYS.format(python=sys.executable, status=status, whole=whole))
    program.chmod(0o755)
    return {"PATH": str(program.parent)}


@pytest.mark.parametrize("packed", [False, True])
def test_a_report_is_exported_on_the_way_and_nothing_stays_beside_it(packed, capture, tmp_path):
    folder = tmp_path / "reports"
    folder.mkdir()
    report = folder / ("run.nsys-rep.gz" if packed else "run.nsys-rep")
    report.write_bytes(gzip.compress(capture.read_bytes()) if packed else capture.read_bytes())
    done = run("kernels", report, environment=fake_nsys(tmp_path))
    assert done.stdout == run("kernels", capture).stdout
    assert list(folder.iterdir()) == [report]


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"status": 1}, "failed (status 1: Importer error: the report is odd)"),
        ({"whole": False}, "left no usable SQLite"),
    ],
)
def test_a_failed_export_is_told_with_its_reason(how, says, tmp_path):
    report = tmp_path / "run.nsys-rep"
    report.write_bytes(gzip.decompress((CAPTURES / "tiny_2025.3.1.sqlite.gz").read_bytes()))
    assert says in refused("kernels", report, environment=fake_nsys(tmp_path, **how))


def test_a_report_without_an_nsys_to_export_it_says_so(tmp_path):
    report = tmp_path / "run.nsys-rep"
    report.write_bytes(b"a report")
    assert "none is on PATH" in refused("kernels", report, environment={"PATH": str(tmp_path)})


def test_of_the_capture_of_one_rank_among_several_it_is_said_which_it_is(tmp_path, capsys):
    for name in ("capture.sqlite", "capture_rank1.sqlite", "other.sqlite"):
        (tmp_path / name).touch()
        say_rank(tmp_path / name)
    say_rank(tmp_path / "capture.sqlite")  # now that the other one is there
    assert [line.partition(";")[0] for line in capsys.readouterr().err.splitlines()] == [
        "kernel-tables: capture_rank1.sqlite holds only rank 1",
        "kernel-tables: capture.sqlite holds only rank 0",
    ]


def test_what_is_said_of_a_rank_shows_no_control_character_of_a_name(capsys):
    say_rank(Path("a\x1b[31m_rank1.sqlite"))
    assert capsys.readouterr().err.startswith(r"kernel-tables: a\x1b[31m_rank1.sqlite holds only rank 1")


@pytest.mark.parametrize("path", [".", "/", f"{'a' * 245}.sqlite"])
def test_a_path_beside_which_no_other_rank_can_lie_is_said_nothing_of(path, capsys):
    say_rank(Path(path))
    assert capsys.readouterr().err == ""


def test_a_package_that_is_not_installed_is_named_before_anything_is_run(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(entry, "REQUIRED_PACKAGES", ("numpy", "not_installed_here"))
    assert entry.main(["record", "--", sys.executable, "-c", f"open({str(tmp_path / 'ran')!r}, 'w')"]) == 2
    told = "kernel-tables: not_installed_here: not installed for "
    assert capsys.readouterr().err.startswith(told + sys.executable)
    assert not (tmp_path / "ran").exists()
