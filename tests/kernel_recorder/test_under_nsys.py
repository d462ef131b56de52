"""The command lines of nsys, with a fake nsys and a program that notes what the recorder notes on a GPU."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from kernel_tables.__main__ import main
from kernel_tables.ranks.collectives import collectives
from kernel_tables.ranks.ranks import ranks_of
from kernel_tables.trace import Trace
from tests.kernel_tables.synthetic import START_END, Synthetic

FAKE = Path(__file__).parents[1] / "fakes" / "nsys"
PROGRAM = """
import os, sys
from pathlib import Path
from kernel_recorder.in_process.handover import Notes

notes = Notes(Path(os.environ["KERNEL_TABLES_RECORDING"]))
notes.add("torch")
notes.add("open", first=6, start_s=0.1, torch="2.13", has_steps=True)
notes.add("closed", done=2, stop_s=0.1, **({"ended": True, "error": "ValueError"} if "ends inside" in sys.argv else {}))
print("from the program", input())
print("to standard error", file=sys.stderr)
sys.exit(int(sys.argv[1]))
"""


RANKS = """
import json, os
from pathlib import Path

with (Path(os.environ["KERNEL_TABLES_RECORDING"]) / "notes.jsonl").open("a") as notes:
    for pid, number in ((4, 1), (3, 0)):
        facts = {"first": 6, "start_s": 0.1, "torch": "2.13", "has_steps": True}
        rank = {"event": "rank", "run": "a", "number": number, "of": 2}
        for event in (rank, {"event": "open", **facts}, CLOSED[number]):
            notes.write(json.dumps({"pid": pid, **event}) + "\\n")
"""


@pytest.fixture
def under_nsys(tmp_path, monkeypatch, capfd):
    """A function that records a program under a fake nsys of this manner, which gives this report."""
    fakes = tmp_path / "bin"
    fakes.mkdir()
    (fakes / "nsys").write_text(FAKE.read_text().replace("/usr/bin/env python3", sys.executable))
    shutil.copymode(FAKE, fakes / "nsys")
    monkeypatch.setenv("PATH", f"{fakes}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    standard_input, writing = os.pipe()
    os.write(writing, b"typed\n")
    os.close(writing)
    plain = os.dup(0)
    os.dup2(standard_input, 0)

    def run(manner="works", status=0, report=None, how="goes on", source=PROGRAM):
        (tmp_path / "train.py").write_text(source)
        (report or whole()).write(fakes / "report")
        (fakes / "manner").write_text(manner)
        program = [sys.executable, "train.py", str(status), how]
        return main(["record", "--profiler", "nsys", "--", *program]), *capfd.readouterr()

    run.profiles = fakes / "profiles"
    yield run
    os.dup2(plain, 0)
    os.close(plain)
    os.close(standard_input)


def whole():
    """Two steps of one kernel each."""
    return (
        Synthetic().range("step", 10, 300).kernel("gemm", at=30).range("step", 310, 600).kernel("gemm", at=330)
    )  # fmt: skip


def test_nsys_records_the_window_alone_and_the_program_keeps_its_streams(under_nsys):
    status, out, err = under_nsys()
    assert (status, out) == (0, "from the program typed\n")
    assert "to standard error" in err
    (line,) = under_nsys.profiles.read_text().splitlines()
    for option in ("--trace=cuda,nvtx", "--capture-range=cudaProfilerApi", "--capture-range-end=stop"):
        assert option in line
    assert "--cuda-graph-trace=node" in line  # else a replayed graph is one row
    assert "recording.sqlite: steps 6 to 7 of process" in err
    assert "by nsys" in err
    assert [line.split()[:3] for line in err.splitlines() if line.startswith("step")] == [["step", "2", "2"]]
    assert "no GPU was used" not in err


def test_the_exit_status_is_the_programs_through_nsys_too(under_nsys):
    status, _, err = under_nsys("ends with 143", 3)
    assert status == 143
    assert "nsys wrote no report" in err


@pytest.mark.parametrize(
    ("manner", "said"),
    [
        ("writes nothing", "nothing is kept: nsys wrote no report; it said: nothing"),
        ("writes half", "nothing is kept:"),
        ("exports half", "nothing is kept:"),
    ],
)
def test_what_nsys_fails_at_is_told_in_one_line_and_leaves_no_file(under_nsys, manner, said):
    status, _, err = under_nsys(manner)
    assert status == 3
    assert sum(said in line for line in err.splitlines()) == 1
    assert not Path("recording.sqlite").exists()


def test_what_the_capture_lacks_is_told_behind_it(under_nsys):
    _, _, err = under_nsys(report=Synthetic().range("step", 10, 300))
    assert "kernel-tables record: error: found 1 ranges 'step', expected 2" in err
    assert "kernel-tables record: error: no kernel was recorded" in err
    assert Path("recording.sqlite").exists()


def test_what_nsys_says_of_every_window_is_not_told(under_nsys):
    always = "Not all CUDA events might have been collected."
    report = whole().diagnostic(2, always).diagnostic(2, "a process used no GPU").diagnostic(3, "an odd thing")
    _, _, err = under_nsys(report=report)
    assert "an odd thing" in err
    assert always not in err and "used no GPU" not in err


@pytest.mark.parametrize(("how", "is_told"), [("goes on", True), ("ends inside", False)])
def test_the_step_in_which_a_program_ended_is_short_without_any_loss(under_nsys, how, is_told):
    report = whole().range("step", 610, 900).kernel("gemm", at=620).kernel("gemm", at=630)
    _, _, err = under_nsys(report=report.range("step", 910, 920), how=how)
    assert ("the CUDA trace stopped early" in err) == is_told
    assert ("the program ended inside the window (ValueError)" in err) != is_told


def test_a_capture_that_cannot_be_believed_leaves_the_exit_status_to_the_program(under_nsys):
    status, _, err = under_nsys("ends with 143", report=whole().kernel("backwards", at=40, start=60, duration=-20))
    assert status == 143
    assert "no table is made of it" in err


def test_where_time_is_lost_is_told_last(under_nsys):
    report = whole().kernel("gemm", at=700, start=900_000_000)
    *_, last = under_nsys(report=report)[2].splitlines()
    assert "fixing it saves at most" in last


def test_without_an_nsys_to_run_under_the_program_does_not_run(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    program = [sys.executable, "-c", "open('ran', 'w')"]
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["record", "--profiler", "nsys", "--", *program]) == 2
    assert "there is no nsys on PATH" in capfd.readouterr().err
    assert not Path("ran").exists()


def of_two_ranks():
    """The steps of two processes on two GPUs in one report, and one process that only launched them."""
    made = Synthetic().diagnostic(2, "No CUDA events collected. Does the process use CUDA?", process=9)
    for process in (3, 4):
        for step in range(2):
            begin = 1000 * step
            made.range("step", begin, begin + 900, process=process, kind=START_END)
            made.kernel(f"gemm_of_{process}", at=begin + 10, duration=100, process=process, device=process)
            made.nccl("ncclAllReduce", begin + 20, begin + 30, 1 << 20, process=process)
            made.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", at=begin + 25, start=begin + 200, process=process,
                        device=process, duration=100 * process)  # fmt: skip
    return made


WHOLE = {"event": "closed", "done": 2, "stop_s": 3.0}


def test_each_rank_gets_its_part_of_the_report(under_nsys):
    source = RANKS.replace("CLOSED", repr([WHOLE, WHOLE]))
    status, _, err = under_nsys(report=of_two_ranks(), source=source)
    assert status == 0
    assert "recording.sqlite: steps 6 to 7 of rank 0, process 3, by nsys" in err
    assert "recording_rank1.sqlite: steps 6 to 7 of rank 1, process 4, by nsys" in err
    assert "Does the process use CUDA" not in err  # of the launcher, which uses none
    assert "rank 0: communication takes 300 ns of a step of 900 ns, 300 ns of it (33.3 %" in err
    assert "rank 1: communication takes 400 ns" in err
    for path, process in ((Path("recording.sqlite"), 3), (Path("recording_rank1.sqlite"), 4)):
        with Trace(path) as trace:
            assert {name for name in trace.kernels()["kernel"] if "gemm" in name} == {f"gemm_of_{process}"}
    with Trace("recording.sqlite") as first, Trace("recording_rank1.sqlite") as second:
        assert collectives(ranks_of([first, second]))["bytes"].tolist() == [1 << 20] * 4


def test_what_another_rank_lacks_is_told_with_its_number(under_nsys):
    source = RANKS.replace("CLOSED", repr([WHOLE, WHOLE | {"done": 3}]))
    _, _, err = under_nsys(report=of_two_ranks(), source=source)
    assert "kernel-tables record: error of rank 1: found 2 ranges 'step', expected 3" in err
