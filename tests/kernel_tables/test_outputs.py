"""Where the command writes: never over a capture, and what it says where it cannot write at all."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernel_tables.command import run_command
from tests.kernel_tables.synthetic import Synthetic

REPOSITORY = Path(__file__).parents[2]
PYTHON_M = [sys.executable, "-m", "kernel_tables"]


@pytest.fixture
def capture(tmp_path) -> Path:
    folder = tmp_path / "captures"
    folder.mkdir()
    return Synthetic().range("step", 0, 100).kernel("gemm", at=20).write(folder / "capture.sqlite")


def run_into(file, *arguments) -> subprocess.CompletedProcess:
    """A process of the command whose standard output is a file."""
    command = [*PYTHON_M, *map(str, arguments)]
    return subprocess.run(command, cwd=REPOSITORY, stdout=file, stderr=subprocess.PIPE)


def refused(done: subprocess.CompletedProcess) -> str:
    """The one line of a command that ended with status 2."""
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith("kernel-tables: ")
    return line


def symbolic_link(capture: Path) -> Path:
    (capture.parent / "link.csv").symlink_to(capture)
    return capture.parent / "link.csv"


def link_through_a_folder(capture: Path) -> Path:
    (capture.parent / "folder").symlink_to(capture.parent)
    return capture.parent / "folder" / capture.name


def hard_link(capture: Path) -> Path:
    os.link(capture, capture.parent / "hard.csv")
    return capture.parent / "hard.csv"


def report_beside(capture: Path) -> Path:
    report = capture.with_suffix(".nsys-rep")
    report.write_bytes(capture.read_bytes())
    return report


def another_capture(capture: Path) -> Path:
    other = capture.with_name("other.table")
    other.write_bytes(capture.read_bytes())
    return other


def another_report(capture: Path) -> Path:
    other = capture.with_name("other.nsys-rep")
    other.write_bytes(b"what nsys wrote")
    return other


@pytest.mark.parametrize("command", ["kernels", "check", "trace"])
@pytest.mark.parametrize(
    "way",
    [Path, symbolic_link, link_through_a_folder, hard_link, report_beside, another_capture, another_report],
    ids=lambda way: way.__name__,
)
def test_a_capture_is_never_written_over(capture, command, way):
    target = way(capture)
    before = {path: path.read_bytes() for path in (capture, target)}
    assert "never written over" in refused(run_command(command, capture, "-o", target))
    assert {path: path.read_bytes() for path in (capture, target)} == before
    assert not [path for path in capture.parent.iterdir() if "partial" in path.name]


def test_a_capture_is_never_written_over_through_a_descriptor_or_standard_output(capture):
    before = capture.read_bytes()
    with capture.open("r+b") as file:
        through = f"/proc/self/fd/{file.fileno()}"
        assert "never written over" in refused(run_command("kernels", capture, "-o", through))
        assert "never written over" in refused(run_into(file, "kernels", capture, "-o", "/dev/stdout"))
        assert "never written over" in refused(run_into(file, "kernels", capture))
    assert capture.read_bytes() == before


def test_a_link_to_a_table_stays_a_link_and_its_table_is_written(capture, tmp_path):
    table, link = tmp_path / "table.csv", tmp_path / "link.csv"
    table.write_text("old\n")
    link.symlink_to(table)
    run_command("kernels", capture, "-o", link).check_returncode()
    assert link.is_symlink()
    assert table.read_text().startswith("range,kernel,class,")


def test_standard_output_in_a_file_may_be_named(capture, tmp_path):
    with (tmp_path / "table.csv").open("wb") as file:
        run_into(file, "kernels", capture, "-o", "/dev/stdout").check_returncode()
    assert (tmp_path / "table.csv").read_text().startswith("range,kernel,class,")
    assert Path("/dev/stdout").is_symlink()


@pytest.mark.parametrize("command", ["kernels", "check"])
def test_a_closed_standard_output_is_one_line(capture, command):
    closed = ["sh", "-c", 'exec "$@" >&-', "sh", *PYTHON_M, command, str(capture)]
    done = subprocess.run(closed, cwd=REPOSITORY, stderr=subprocess.PIPE)
    assert done.returncode == 2
    assert done.stderr.decode().splitlines() == ["kernel-tables: standard output is closed; name a file with -o FILE"]


def test_a_full_disk_behind_standard_output_is_one_line(capture):
    with Path("/dev/full").open("wb") as full:
        assert "standard output: No space left on device" in refused(run_into(full, "kernels", capture))


def test_a_file_name_that_is_no_text_is_read_and_named(capture):
    odd = os.fsencode(capture.parent) + b"/caf\xe9\x1b[31m.sqlite"
    capture.rename(os.fsdecode(odd))
    done = run_command("check", os.fsdecode(odd), "--format", "json")
    assert (done.returncode, done.stderr) == (0, b"")
    done = run_command("ranges", os.fsdecode(odd), "--under", "none")
    assert done.returncode == 2
    assert rb"/caf\udce9\x1b[31m.sqlite: no range is named 'none'" in done.stderr
