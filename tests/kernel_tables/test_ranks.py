"""Ranks of one capture or several, what communication costs, and what is known of their collectives."""

import json
import re
from pathlib import Path

import pandas as pd
import pytest

import kernel_tables
from kernel_tables import ranks as ranks_module
from kernel_tables.capture import NcclCall
from kernel_tables.errors import NotConserved
from kernel_tables.ranks import collectives, communication, findings_of_ranks, match_requests, ranks_of
from tests.kernel_tables.command import run_command
from tests.kernel_tables.kineto_events import KERNEL, event, written
from tests.kernel_tables.synthetic import Synthetic, process_id

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
BUCKETS = ("all-reduce, bytes = 8000, bucket = 0", "all-reduce, bytes = 2000, bucket = 1")


@pytest.fixture
def opened(tmp_path):
    """A function that writes captures and gives their ranks."""
    profiles = []

    def open_all(*captures: Synthetic):
        paths = [made.write(tmp_path / f"{len(profiles)}_{place}.sqlite") for place, made in enumerate(captures)]
        profiles.extend(new := [kernel_tables.read(path) for path in paths])
        return ranks_of(new)

    yield open_all
    for profile in profiles:
        profile.close()


# Ranks


def work(process: int, device: int, steps: int = 2, into: Synthetic | None = None) -> Synthetic:
    """Steps with a kernel and a copy each; correlation ids count from 1 in each process."""
    capture, where = into or Synthetic(), {"process": process, "device": device}
    for step in range(steps):
        capture.range("step", 100 * step, 100 * step + 90, process=process)
        capture.kernel("gemm", at=100 * step + 10, duration=20, correlation=2 * step + 1, **where)
        capture.memcpy(at=100 * step + 60, duration=5, correlation=2 * step + 2, **where)
    return capture


def test_ranks_are_the_processes_with_work_by_capture_then_by_device_or_as_captures_say(opened):
    ranks = opened(work(9, device=0, into=work(7, device=1)), work(9, device=0))
    found = [(rank.number, rank.process, rank.devices, len(rank.steps("step"))) for rank in ranks]
    assert found == [(0, process_id(9), [0], 2), (1, process_id(7), [1], 2), (2, process_id(9), [0], 2)]
    told = [work(number, 0).metadata("RECORDED_RANK", str(number)) for number in (3, 1)]
    assert [(rank.number, rank.process) for rank in opened(*told)] == [(1, process_id(1)), (3, process_id(3))]


def test_ranks_that_lack_steps_are_found_and_a_process_that_has_none_beside_others_is_no_rank(opened, tmp_path):
    paths = [work(9, 0, steps).write(tmp_path / f"{steps}.sqlite") for steps in (2, 1)]
    checked = run_command("check", *paths, "--steps", 2, "--format", "json")
    codes = [(one["capture"], one["code"]) for one in json.loads(checked.stdout)]
    assert (checked.returncode, codes) == (1, [("1.sqlite", "step_count"), ("", "ranks_differ")])
    beside = opened(work(7, 0).memcpy(at=5, process=8, correlation=1))
    assert findings_of_ranks(beside) == []


# What communication costs


def rank(arrival: int, process: int = 1, device: int = 0, into: Synthetic | None = None, names=BUCKETS) -> Synthetic:
    """Two steps of 1000 ns. A gemm computes from 100 to 400; a first all-reduce starts at ARRIVAL and ends at 500, a
    second takes 600 to 650 on this rank if it comes late, and longer if it waits; a copy runs from 640 to 700."""
    capture, where = into or Synthetic(), {"process": process, "device": device}
    capture.range("measure", 0, 2000, process=process)
    for step in (0, 1000):
        capture.range("step", step, step + 1000, process=process)
        capture.kernel("gemm", at=step + 50, start=step + 100, duration=300, **where)
        for name, at, start, end in ((names[0], 60, arrival, 500), (names[1], 70, arrival + 300, 650)):
            capture.range(name, step + at, step + at + 5, process=process)
            capture.kernel(NCCL, at=step + at + 1, start=step + start, duration=end - start, stream=20, **where)
        capture.memcpy(at=step + 80, start=step + 640, duration=60, **where)
    return capture


@pytest.fixture
def two(opened):
    return opened(rank(200), rank(300))


def test_parts_of_a_step_and_its_communication_are_the_planted_ones(two, monkeypatch):
    table = communication(two)
    same = {
        "device": 0, "step": 1, "step_ns": 1000, "compute_ns": 300, "exposed_memory_ns": 50, "collectives": 2,
        "bytes": 10_000, "transfer_ns": 250,
    }  # fmt: skip
    names = ("rank", "exposed_communication_ns", "idle_ns", "communication_ns", "overlapped_ns", "waiting_ns")
    planted = ((0, 250, 400, 450, 200, 200), (1, 150, 500, 250, 100, 0))
    rows = table[table["step"] == 1].to_dict("records")
    assert rows == [same | dict(zip(names, values, strict=True)) for values in planted]
    monkeypatch.setattr(ranks_module, "difference", lambda one, *others: one)
    with pytest.raises(NotConserved):
        communication(two)


def test_one_capture_of_both_processes_has_the_same_tables(two, opened):
    both = opened(rank(300, process=9, device=1, into=rank(200, process=7, device=0)))
    assert communication(both)["device"].tolist() == [0, 0, 1, 1]
    for make in (communication, collectives):
        pd.testing.assert_frame_equal(make(both).drop(columns="device"), make(two).drop(columns="device"))


def test_a_collective_is_divided_into_transfer_and_waiting_and_has_its_bandwidth(two):
    table = collectives(two).query("step == 0 and number == 0")
    chosen = ["duration_ns", "transfer_ns", "waiting_ns", "exposed_ns", "operation", "bytes", "start_ns"]
    assert table[chosen].values.tolist() == [
        [300, 200, 100, 100, "all-reduce", 8000, 200],
        [200, 200, 0, 100, "all-reduce", 8000, 300],
    ]
    assert table["algorithm_gb_per_s"].tolist() == table["bus_gb_per_s"].tolist() == [40.0, 40.0]  # × 2(n − 1)/n


def test_without_other_ranks_or_bytes_what_needs_them_is_missing(opened):
    single = collectives(opened(rank(200)))
    assert len(single) == 4 and single[["transfer_ns", "waiting_ns", "bus_gb_per_s"]].isna().all(axis=None)
    fewer = collectives(opened(*(rank(200).metadata("RECORDED_RANKS", "4") for _ in range(2))))
    assert fewer[["transfer_ns", "waiting_ns", "bus_gb_per_s"]].isna().all(axis=None)


def test_steps_in_which_ranks_ran_different_collectives_are_not_compared(two, opened):
    ranks = opened(rank(200), rank(300), rank(250).kernel(NCCL, at=75, start=900, duration=20, stream=20))
    known = collectives(ranks).groupby("step")["transfer_ns"].agg(lambda column: column.notna().all())
    assert known.to_dict() == {0: False, 1: True}
    (found,) = findings_of_ranks(ranks)
    assert found.code == "collectives_differ" and "in steps 0:" in found.message
    assert findings_of_ranks(two) == []


def test_a_program_that_runs_ahead_has_steps_from_first_start_to_first_start(opened):
    capture = Synthetic()
    for step in range(3):
        capture.range("step", 10 * step, 10 * step + 10)
        capture.kernel("gemm", at=10 * step + 1, start=100 + 50 * step, duration=30)
        capture.kernel(NCCL, at=10 * step + 2, start=120 + 50 * step, duration=20, stream=9)
    table = communication(opened(capture))
    columns = ("step_ns", "idle_ns", "exposed_communication_ns")
    assert [table[name].tolist() for name in columns] == [[50, 50, 40], [10, 10, 0], [10, 10, 10]]


def test_each_device_of_a_rank_has_its_own_time(opened):
    capture = Synthetic().range("step", 0, 100).kernel("gemm", at=1, start=10, duration=30)
    capture.memcpy(at=2, start=30, duration=20).kernel("gemm", at=3, start=10, duration=5, device=1)
    table = communication(opened(capture))[["compute_ns", "exposed_memory_ns", "idle_ns"]]
    assert table.values.tolist() == [[30, 10, 60], [5, 0, 95]]


def test_the_command_says_what_is_missing_and_why(tmp_path):
    alone = work(9, device=0).write(tmp_path / "alone.sqlite")
    assert b"cannot be separated with one rank" in run_command("communication", alone).stderr
    for names, is_told in ((BUCKETS, False), (("all-reduce, bytes = 8000", "ncclAllReduce"), True)):
        capture = rank(300, process=2, into=rank(200, names=names), device=1, names=names).write(tmp_path / "x.sqlite")
        said = run_command("communication", capture, "--collectives").stderr.decode()
        assert ("bytes and bandwidth are missing for collectives without" in said) == is_told
    done = run_command("communication", Synthetic().write(tmp_path / "nothing.sqlite"), "--format", "csv")
    assert done.stdout.startswith(b"rank,device,step,step_ns,") and done.stdout.count(b"\n") == 1
    assert b"nothing ran on a device in a range 'step'" in done.stderr


# What is known of collectives


def test_the_operation_is_that_of_the_kernel_and_bytes_those_of_the_innermost_range(opened):
    for names, kernel, *expected in (
        (("step", BUCKETS[1], "x"), NCCL, "all-reduce", 2000),
        (("step", "all-gather, bytes = 5", "all_reduce"), "ncclDevKernel_Generic(x)", "all-reduce", None),
        (("step", "all-reduce, bucket = 3", "bytes = 5"), "gloo:reduce_scatter", "reduce-scatter", 5),
        (("step", "reduced precision"), "ncclKernel_ReduceScatter_RING_LL_Sum_half", "reduce-scatter", None),
        (("step",), "ncclDevKernel_Generic(x)", "unknown", None),
    ):
        made = Synthetic().kernel(kernel, at=8, duration=100)
        for depth, name in enumerate(names):
            made.range(name, 0, 1000 - depth)
        table = collectives(opened(made)).astype(object)
        assert table.where(table.notna(), None)[["operation", "bytes"]].values.tolist() == [expected]
        assert table["range"].tolist() == [names[-1]]


@pytest.mark.parametrize(
    ("calls", "at", "operation", "size"),
    [
        ("Reduce 5 9 8", 9, None, None),  # launched after the call
        ("GroupStart 1 2 -, Send 3 4 8, Reduce 5 6 8, GroupEnd 7 9 -", 8, None, 16),
        ("Send 3 4 8, GroupEnd 7 9 -", 8, None, None),  # begun before the capture
        ("GroupStart 0 1 -, AlltoAll 2 9 8, Send 4 5 1, GroupEnd 10 12 -", 11, "all-to-all", 8),  # which calls others
    ],
)
def test_what_was_requested_of_a_kernel_is_what_its_call_or_group_says(calls, at, operation, size):
    made = [
        NcclCall(int(start), int(end), 1, f"nccl{name}", None if count == "-" else int(count), 7)
        for name, start, end, count in (call.split() for call in calls.split(", "))
    ]
    assert match_requests(made, [(1, at)])[0][:2] == (operation, size)
    assert [size for _, size, _ in match_requests(made, [(1, at)] * 2)] == [None, None]  # several kernels


def test_collectives_of_several_communicators_are_matched_each_by_itself(opened):
    """Ranks 0 and 1 reduce among themselves, 2 and 3 too, and all four together: the order differs between pairs."""
    made = Synthetic()
    for number in range(4):
        process, pair = number + 1, 100 + number // 2
        made.range("step", 0, 1000, process=process)
        order = [(pair, 1000), (50, 4000)] if number < 2 else [(50, 4000), (pair, 1000), (pair, 1000)]
        for place, (communicator, size) in enumerate(order):
            at, where = 10 + 20 * place, {"process": process, "device": number}
            made.nccl("ncclAllReduce", at, at + 10, size, communicator, process=process)
            duration = min(size // 10 + 10 * number, 200)
            made.kernel(NCCL, at=at + 1, start=300 * place + 50, duration=duration, **where)
    ranks = opened(made)
    table = collectives(ranks)
    pairs, of_all = table[table["bytes"] == 1000], table[table["bytes"] == 4000]
    assert findings_of_ranks(ranks) == []
    assert pairs["transfer_ns"].tolist() == [100, 100, 120, 120, 120, 120] and of_all["transfer_ns"].eq(200).all()
    assert pairs["waiting_ns"].tolist() == [0, 10, 0, 0, 10, 10]
    factors = [(part["bus_gb_per_s"] / part["algorithm_gb_per_s"]).unique().tolist() for part in (pairs, of_all)]
    assert factors == [[1.0], [1.5]]  # of two ranks, and of four


REAL = Path(__file__).parents[1] / "captures" / "nccl_2025.3.1.sqlite.gz"


def test_bytes_are_those_that_the_program_gave_on_two_h200():
    # What PyTorch was given is the part of one rank for gathers and scatters.
    operations = {
        "all_reduce": "all-reduce", "all_reduce_bf16": "all-reduce", "coalesced": "all-reduce", "barrier": "all-reduce",
        "broadcast": "broadcast", "reduce": "reduce", "all_gather": "all-gather", "list_gather": "all-gather",
        "reduce_scatter": "reduce-scatter", "all_to_all": "all-to-all", "send_recv": "send-recv",
    }  # fmt: skip
    with kernel_tables.read(REAL) as profile:
        ranks, found = ranks_of([profile]), {}
        for text in profile.capture.ranges.names:
            if (match := re.match(r"known (\w+) (\d+)", text)) and match[1] in operations:
                operation = operations[match[1]]
                parts = 2 if operation in ("all-gather", "reduce-scatter") else 1
                found[match[1]] = table = collectives(ranks, step_name=text)
                assert table[["operation", "bytes"]].values.tolist() == [[operation, parts * int(match[2])]] * 2
        assert found.keys() == operations.keys()


def test_ranks_recorded_by_pytorchs_profiler_have_their_bytes_and_bandwidth(tmp_path):
    """Two ranks that gather 8 MiB in 10 and 12 µs."""
    told = {
        "Collective name": "_allgather_base", "In msg nelems": 1 << 20, "Out msg nelems": 2 << 20, "Group size": 2,
        "dtype": "Float", "Process Group Name": "0", "Process Group Ranks": "[0, 1]", "External id": 2,
    }  # fmt: skip
    profiles = []
    for number, us in enumerate((10, 12)):
        (tmp_path / str(number)).mkdir()
        path = written(
            tmp_path / str(number),
            event("user_annotation", "step", 0, 100),
            event("cuda_runtime", "cudaLaunchKernelExC", 10, 5, correlation=13),
            event("kernel", "ncclDevKernel_Generic(x)", 20, us, correlation=13, **KERNEL | {"device": number}, **told),
        )
        profiles.append(kernel_tables.read(path))
    table = collectives(ranks_of(profiles))
    assert table[["operation", "bytes", "transfer_ns"]].values.tolist() == [["all-gather", 8 << 20, 10_000]] * 2
    assert table["bus_gb_per_s"].tolist() == [(8 << 20) / 10_000 / 2] * 2
