"""The command: files, exit statuses, and what it does with bad input. It never writes over a capture."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernel_tables.command import run_command as run
from tests.kernel_tables.program import GEMM, SGEMM, Program

REPOSITORY = Path(__file__).parents[2]
CAPTURES = REPOSITORY / "tests" / "captures"
PYTHON_M = [sys.executable, "-m", "kernel_tables"]


@pytest.fixture
def capture(tmp_path) -> Path:
    """Steps of which matrix multiplies without tensor cores take two thirds."""
    program = Program()
    for _ in range(3):
        with program.range("step"):
            program.pause(1)
            with program.range("forward"):
                program.launch(SGEMM, 200)
                program.launch(GEMM, 100)
            program.pause(1)
    (tmp_path / "captures").mkdir()
    return program.capture.write(tmp_path / "captures" / "capture.sqlite")


def refused(*arguments, done: subprocess.CompletedProcess | None = None) -> str:
    """The one line on standard error of a command that ends with status 2 and prints nothing."""
    done = done or run(*arguments)
    assert done.returncode == 2 and not done.stdout, done
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith("kernel-tables: ")
    return line


def test_rows_are_chosen_by_rank_and_number_and_classes_are_ones_own(capture):
    (heading, row) = run("kernels", capture, "--top", 1).stdout.decode().splitlines()
    assert heading.startswith("range,kernel,class") and SGEMM in row
    lines = run("kernels", capture, capture, "--top", 1).stdout.decode().splitlines()
    assert [line.split(",")[::4][:2] for line in lines] == [["rank", "launches"], ["0", "3"], ["1", "3"]]
    assert b"mine,1,3" in run("classes", capture, "--class", "mine=sm80").stdout
    assert "expected CLASS=REGEX" in refused("kernels", capture, "--class", "gemm")


def test_a_finding_is_an_exit_status_where_that_is_asked_for(capture):
    for limits, status in (
        ("no_tensor_cores", 1), ("launch_bound", 0), ("50%", 1), ("90", 0), ("launch_bound 10", 1), ("101", 2), ("?", 2)
    ):  # fmt: skip
        options = [part for limit in limits.split() for part in ("--fail-on", limit)]
        done = run("diagnose", capture, "--format", "json", *options)
        assert done.returncode == status
        assert status == 2 or json.loads(done.stdout)[0]["code"] == "no_tensor_cores"
        assert (b"--fail-on: no_tensor_cores, 6" in done.stderr) == (status == 1)


def test_check_names_files_and_a_tolerance_is_a_percentage(capture):
    lines = run("check", capture, CAPTURES / "tiny_2022.4.2.sqlite.gz").stdout.splitlines()
    assert lines[0] == b"capture,severity,code,message" and b"tiny_2022.4.2.sqlite.gz,error" in lines[1]
    assert "not a percentage" in refused("diff", capture, capture, "--tolerance", "-1")


def test_names_are_explained():
    lines = run("names", SGEMM, "--format", "text").stdout.decode().splitlines()
    starts = ("short name: sgemm 128×128 tn (", "class: gemm (")
    assert [any(line.startswith(start) for line in lines) for start in starts] == [True, True]
    assert b"class,mine," in run("names", "no_such", "--class", "mine=no").stdout
    assert b"class,unknown,no rule fits" in run("names", "no_such").stdout


@pytest.mark.parametrize("command", ["kernels", "trace", "report"])
def test_a_capture_is_never_written_over_and_stays_as_it_was(capture, command):
    link, other, content = capture.with_name("link.csv"), capture.with_name("other.table"), capture.read_bytes()
    link.symlink_to(capture)
    other.write_bytes(content)
    for target in (capture, link, other):
        assert "never written over" in refused(command, capture, "-o", target)
    assert {path.read_bytes() for path in capture.parent.iterdir()} == {content}


def test_a_full_disk_is_one_line_and_a_reader_that_leaves_is_none(capture):
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*PYTHON_M, "kernels", capture], cwd=REPOSITORY, stdout=full, stderr=subprocess.PIPE)
    assert "standard output: No space left on device" in refused(done=done)
    line = f"{' '.join(PYTHON_M)} kernels {capture} | true"
    assert subprocess.run(line, shell=True, cwd=REPOSITORY, capture_output=True).stderr == b""


def test_a_table_appears_complete_or_not_at_all_also_through_a_link(capture, tmp_path):
    table, link = tmp_path / "table.csv", tmp_path / "link.csv"
    table.write_text("old\n")
    link.symlink_to(table)
    refused("ranges", capture, "--under", "nothing", "-o", link)
    refused("ranges", capture, "-o", tmp_path / "missing" / "table.csv")
    assert table.read_text() == "old\n"
    assert run("kernels", capture, "-o", link).returncode == 0 and link.is_symlink()
    assert table.read_text().startswith("range,kernel,class,")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["captures", "link.csv", "table.csv"]


def test_files_are_named_whatever_their_names(capture, tmp_path):
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/a b?c#%20 caf\xe9\x1b[31m.sqlite")
    capture.rename(odd)
    done = run("report", odd, "-o", tmp_path / "page.html")
    assert (done.returncode, done.stderr.decode()) == (0, f"kernel-tables: open file://{tmp_path}/page.html\n")
    for options in (("ranges", odd, "--under", "none"), ("diagnose", odd, "--step-name", "none")):
        assert r"caf\udce9\x1b[31m.sqlite: no range is named 'none'" in refused(*options)
