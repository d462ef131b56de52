"""The command lines of nsys, with a fake nsys and a program that notes what the recorder notes on a GPU."""

import os
import shutil
import sys
from pathlib import Path

import pytest

import kernel_tables
from tests.kernel_tables.synthetic import START_END, Synthetic

FAKE = Path(__file__).parents[2] / "fakes" / "nsys"
PROGRAM = """
import json, os, sys
from pathlib import Path

with (Path(os.environ["KERNEL_TABLES_RECORDING"]) / "notes.jsonl").open("a") as notes:
    for note in NOTES:
        notes.write(json.dumps({"pid": 3, **note}) + "\\n")
print("from the program", input())
print("to standard error", file=sys.stderr)
"""
OPENED = {"event": "open", "first": 6, "torch": "2.13", "has_steps": True}
OPENED |= {"by": "optimizer", "name": "SGD"}
CLOSED = {"event": "closed", "done": 2}


@pytest.fixture
def under_nsys(tmp_path, monkeypatch, record):
    """A function that records a program under a fake nsys of this manner, which gives this report."""
    fakes = tmp_path / "bin"
    fakes.mkdir()
    (fakes / "nsys").write_text(FAKE.read_text().replace("/usr/bin/env python3", sys.executable))
    shutil.copymode(FAKE, fakes / "nsys")
    monkeypatch.setenv("PATH", f"{fakes}{os.pathsep}{os.environ['PATH']}")
    standard_input, writing = os.pipe()
    os.write(writing, b"typed\n")
    os.close(writing)
    plain = os.dup(0)
    os.dup2(standard_input, 0)

    def run(*options, manner="works", report=None, notes=(OPENED, CLOSED)):
        (report or whole()).write(fakes / "report")
        (fakes / "manner").write_text(manner)
        return record(PROGRAM.replace("NOTES", repr(list(notes))), *options, profiler="nsys")

    run.profiles = fakes / "profiles"
    yield run
    os.dup2(plain, 0)
    os.close(plain)
    os.close(standard_input)


def whole():
    """Two steps of one kernel each."""
    return Synthetic().range("step", 10, 300).kernel("gemm", at=30).range("step", 310, 600).kernel("gemm", at=330)


def test_nsys_records_the_window_alone_with_further_options_and_the_program_keeps_its_streams(under_nsys):
    done = under_nsys("--nsys-options=--trace=cuda,nvtx,osrt --python-sampling=true")
    assert (done.status, done.out) == (0, "from the program typed\n")
    assert "to standard error" in done.err
    (line,) = under_nsys.profiles.read_text().splitlines()
    for option in ("--capture-range=cudaProfilerApi", "--capture-range-end=stop", "--cuda-graph-trace=node"):
        assert option in line  # else a replayed graph is one row
    assert "--python-sampling=true" in line and "--trace=cuda,nvtx,osrt" in line and "--trace=cuda,nvtx " not in line
    assert "recording.sqlite: steps 6 to 7 of SGD, process 3, by nsys" in done.err
    assert [line.split()[:3] for line in done.err.splitlines() if line.startswith("step")] == [["step", "2", "2"]]
    assert "no GPU was used" not in done.err


def test_options_that_name_the_file_or_the_window_are_refused(under_nsys):
    for option in ("--output=x", "osrt", "--capture-range=none"):
        assert under_nsys(f"--nsys-options={option}").status == 2
    assert not under_nsys.profiles.exists()


@pytest.mark.parametrize(
    ("manner", "said"),
    [
        ("writes nothing", "nothing is kept: nsys wrote no report; it said: nothing"),
        ("writes half", "nothing is kept:"),
        ("exports half", "nothing is kept:"),
    ],
)
def test_what_nsys_fails_at_is_told_in_one_line_and_leaves_no_file(under_nsys, manner, said):
    done = under_nsys(manner=manner)
    assert done.status == 3
    assert sum(said in line for line in done.err.splitlines()) == 1
    assert not Path("recording.sqlite").exists()


ALWAYS = "Not all CUDA events might have been collected."


@pytest.mark.parametrize(
    ("report", "notes", "said", "unsaid"),
    [
        (Synthetic().range("step", 10, 300), [], ["error: found 1 ranges 'step', expected 2", "error: no kernel"], []),
        (whole().diagnostic(2, ALWAYS).diagnostic(3, "an odd thing"), [], ["an odd thing"], [ALWAYS]),
        (whole().range("backwards", 60, 40), [], ["no table is made of it"], []),
        (whole().kernel("gemm", at=700, start=900_000_000), [], ["fixing it saves at most"], []),
        (  # the step in which a program ended is short without any loss
            whole().range("step", 610, 900).kernel("gemm", at=620).kernel("gemm", at=630).range("step", 910, 920),
            [CLOSED | {"cut_by": "the program ended (ValueError)"}],
            ["the window ended early: the program ended (ValueError)"],
            ["the CUDA trace stopped early"],
        ),
    ],
)
def test_what_the_capture_lacks_is_told_behind_it(under_nsys, report, notes, said, unsaid):
    done = under_nsys(report=report, notes=[OPENED, *(notes or [CLOSED])])
    assert done.status == 0 and all(text in done.err for text in said) and not any(text in done.err for text in unsaid)
    assert Path("recording.sqlite").exists()


def test_of_a_program_that_ends_where_its_window_begins_no_missing_kernels_are_told(under_nsys):
    notes = [OPENED, CLOSED | {"done": 0, "cut_by": "the program ended"}]
    done = under_nsys(report=Synthetic().range("step", 10, 300).memcpy(at=30), notes=notes)
    assert done.status == 0 and "no step in it is complete, so take a smaller --skip" in done.err
    assert "no kernel was recorded" not in done.err


def test_each_rank_gets_its_part_of_the_report(under_nsys):
    made = Synthetic().diagnostic(2, "No CUDA events collected. Does the process use CUDA?", process=9)
    notes = []
    for number, process in ((1, 4), (0, 3)):
        done = {"done": 2 + number}
        notes += [{"event": "rank", "run": "a", "number": number, "of": 2}, OPENED, CLOSED | done]
        notes[-3:] = [{"pid": process, **note} for note in notes[-3:]]
        for step in range(2):
            begin = 1000 * step
            made.range("step", begin, begin + 900, process=process, kind=START_END)
            made.kernel(f"gemm_of_{process}", at=begin + 10, duration=100, process=process, device=process)
            made.nccl("ncclAllReduce", begin + 20, begin + 30, 1 << 20, process=process)
            made.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", at=begin + 25, start=begin + 200, process=process,
                        device=process, duration=100 * process)  # fmt: skip
    done = under_nsys(report=made, notes=notes)
    assert done.status == 0
    assert "recording.sqlite: steps 6 to 7 of SGD, rank 0, process 3, by nsys" in done.err
    assert "Does the process use CUDA" not in done.err  # of the launcher, which uses none
    assert "kernel-tables communication recording.sqlite recording_rank1.sqlite\n" in done.err
    assert "kernel-tables record: error of rank 1: found 2 ranges 'step', expected 3" in done.err
    for path, process in (("recording.sqlite", 3), ("recording_rank1.sqlite", 4)):
        with kernel_tables.read(path) as profile:
            assert {name for name in profile.kernels()["kernel"] if "gemm" in name} == {f"gemm_of_{process}"}


def test_without_an_nsys_to_run_under_the_program_does_not_run(record, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    done = record("open('ran', 'w')", profiler="nsys")
    assert (done.status, Path("ran").exists()) == (2, False) and "there is no nsys on PATH" in done.err
