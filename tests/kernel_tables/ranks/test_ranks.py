"""Two processes in one capture, with colliding correlation ids, and one capture each: the same tables by rank."""

import json

import pandas as pd
import pytest

from kernel_tables.__main__ import main
from kernel_tables.ranks.ranks import ranks_of
from kernel_tables.trace import Trace
from tests.kernel_tables.synthetic import Synthetic, changed, process_id

STEPS = 2


def work(capture: Synthetic, process: int, device: int, steps: int = STEPS, at: int = 0, gemm: int = 10) -> Synthetic:
    """Steps of 100 ns with a kernel of GEMM ns and a copy of 5 each; correlation ids count from 1 in each process."""
    where = {"process": process, "device": device}
    capture.range("measure", at, at + 100 * steps, process=process)
    for step in range(steps):
        begin = at + 100 * step
        capture.range("step", begin, begin + 90, process=process)
        capture.range("forward", begin, begin + 40, process=process)
        capture.kernel("gemm", at=begin + 10, duration=gemm, correlation=2 * step + 1, **where)
        capture.memcpy(at=begin + 60, duration=5, correlation=2 * step + 2, **where)
    return capture


@pytest.fixture
def together(tmp_path):
    capture = work(Synthetic(), process=7, device=1, gemm=20)
    return work(capture, process=9, device=0, at=3, gemm=30).write(tmp_path / "together.sqlite")


@pytest.fixture
def alone(tmp_path):
    return [
        work(Synthetic(), process=9, device=0, at=3, gemm=30).write(tmp_path / "rank0.sqlite"),
        work(Synthetic(), process=9, device=0, gemm=20).write(tmp_path / "rank1.sqlite"),
    ]


def told(capsys, *arguments) -> tuple[int, str]:
    return main([str(argument) for argument in arguments]), capsys.readouterr().out


def test_ranks_are_the_processes_with_work_by_capture_then_by_device(together, alone):
    with Trace(together) as both, Trace(alone[0]) as one:
        ranks = ranks_of([both, one])
    found = [(rank.number, rank.process, rank.devices, len(rank.steps("step"))) for rank in ranks]
    assert found == [(0, process_id(9), [0], 2), (1, process_id(7), [1], 2), (2, process_id(9), [0], 2)]


@pytest.mark.parametrize("command", ["ranges", "kernels", "classes"])
def test_one_capture_of_two_processes_gives_what_their_own_captures_give(together, alone, command, capsys):
    _, of_one = told(capsys, command, together, "--ranks")
    _, of_two = told(capsys, command, *alone)
    assert of_one == of_two
    assert of_one.splitlines()[0].startswith("rank,")


def test_each_rank_has_its_own_steps_and_times_though_correlation_ids_collide(together, capsys):
    _, table = told(capsys, "ranges", together, "--ranks", "--under", "step")
    rows = table.splitlines()
    assert [row for row in rows if ",step," in row] == ["0,step,2,2,60,2,10", "1,step,2,2,40,2,10"]
    assert [row for row in rows if ",forward," in row] == ["0,forward,2,2,60,0,0", "1,forward,2,2,40,0,0"]


def test_without_ranks_one_capture_is_told_as_a_whole(together, capsys):
    _, table = told(capsys, "ranges", together, "--under", "step")
    assert "step,4,4,100,4,20" in table.splitlines()


def test_a_tree_is_told_by_rank_too(together, capsys):
    _, table = told(capsys, "ranges", together, "--ranks", "--tree", "--under", "step")
    assert "1,measure > step,0,2,2,40,2,10" in table.splitlines()


def test_check_counts_the_steps_of_each_process_and_not_their_sum(together, capsys):
    status, findings = told(capsys, "check", together, "--steps", STEPS)
    assert status == 0, findings
    status, findings = told(capsys, "check", together, "--steps", 2 * STEPS)
    assert status == 1
    assert [f"2 ranges 'step' of process {process}" in findings for process in (7, 9)] == [True, True]


def test_check_names_the_capture_of_a_finding_and_ranks_that_lack_steps(alone, tmp_path, capsys):
    short = work(Synthetic(), process=9, device=0, steps=1).write(tmp_path / "short.sqlite")
    status, findings = told(capsys, "check", *alone, short, "--steps", STEPS, "--format", "json")
    assert status == 1
    assert [(one["capture"], one["code"]) for one in json.loads(findings)] == [
        ("short.sqlite", "step_count"),
        ("", "ranks_differ"),
    ]
    assert "rank 2: 1" in findings


def test_a_process_without_steps_in_the_capture_of_others_is_no_rank_that_lacks_them(tmp_path, capsys):
    capture = work(Synthetic(), process=7, device=0).memcpy(at=5, process=8, correlation=1)
    assert told(capsys, "check", capture.write(tmp_path / "helper.sqlite"), "--steps", STEPS)[0] == 0


def began(path, utc_ns: int):
    return changed(
        path,
        "CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER)",
        f"INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES ({utc_ns})",
    )


def slices(path, name: str) -> pd.DataFrame:
    events = json.loads(path.read_text())["traceEvents"]
    of_streams = "range of a stream"
    found = pd.DataFrame([event for event in events if event["name"] == name and event.get("cat") != of_streams])
    return found.assign(ns=(found["ts"] * 1000).round().astype(int))


def test_a_trace_of_two_captures_has_both_on_one_clock_and_in_processes_of_their_own(alone, tmp_path, capsys):
    began(alone[0], 1_000), began(alone[1], 1_050)
    assert told(capsys, "trace", *alone, "-o", tmp_path / "trace.json")[0] == 0
    steps = slices(tmp_path / "trace.json", "step")
    by_process = steps.groupby("pid")["ns"].apply(list).tolist()
    assert by_process == [[0, 100], [47, 147]]  # 3 and 0 on clocks that are 50 ns apart
    arrows = slices(tmp_path / "trace.json", "launch")
    assert (arrows.groupby("id")["pid"].nunique() == 1).all()
    assert sorted(arrows["id"].value_counts()) == [2] * 8


def test_captures_that_do_not_say_when_they_began_are_aligned_by_their_first_step(alone, tmp_path, capsys):
    told(capsys, "trace", *alone, "-o", tmp_path / "trace.json")
    assert slices(tmp_path / "trace.json", "step")["ns"].tolist() == [0, 100, 0, 100]


def test_the_command_tells_what_communication_costs_and_what_one_rank_cannot_tell(together, capsys):
    assert main(["communication", str(together)]) == 0
    told = capsys.readouterr()
    head, first, *_ = told.out.splitlines()
    assert head == (
        "rank,device,step,step_ns,compute_ns,exposed_communication_ns,exposed_memory_ns,idle_ns,communication_ns,"
        "overlapped_ns,collectives,bytes,transfer_ns,waiting_ns"
    )
    assert first == "0,0,0,90,30,0,5,55,0,0,0,,,"
    assert told.err == ""
    assert main(["communication", str(together), "--collectives"]) == 0
    assert capsys.readouterr().out.splitlines()[0].startswith("rank,device,step,number,operation,")


def test_one_rank_is_told_to_be_too_few(alone, capsys):
    assert main(["communication", str(alone[0])]) == 0
    assert "transfer and waiting cannot be separated with one rank" in capsys.readouterr().err
