"""What communication costs, against made-up ranks with planted numbers and against single nanoseconds."""

import numpy as np
import pandas as pd
import pytest

from kernel_tables.__main__ import main
from kernel_tables.errors import NotConserved
from kernel_tables.ranks import ranks as steps_of_ranks
from kernel_tables.ranks.collectives import bus_factor, collectives, operation_of, parse_range_path, unmatched_steps
from kernel_tables.ranks.communication import PART_COLUMNS, communication
from kernel_tables.ranks.ranks import ranks_of
from kernel_tables.trace import Trace
from tests.kernel_tables.synthetic import Synthetic

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
BUCKETS = ("all-reduce, bytes = 8000, bucket = 0", "all-reduce, bytes = 2000, bucket = 1")


def rank(arrival: int, process: int = 1, device: int = 0, into: Synthetic | None = None, sizes=BUCKETS) -> Synthetic:
    """Two steps of 1000 ns. A gemm computes from 100 to 400; a first all-reduce starts at ARRIVAL and ends at 500, a
    second takes 600 to 650 on this rank if it comes late, and longer if it waits; a copy runs from 640 to 700."""
    capture, where = into or Synthetic(), {"process": process, "device": device}
    capture.range("measure", 0, 2000, process=process)
    for step in (0, 1000):
        capture.range("step", step, step + 1000, process=process)
        capture.kernel("gemm", at=step + 50, start=step + 100, duration=300, **where)
        for name, at, start, end in ((sizes[0], 60, arrival, 500), (sizes[1], 70, arrival + 300, 650)):
            capture.range(name, step + at, step + at + 5, process=process)
            capture.kernel(NCCL, at=step + at + 1, start=step + start, duration=end - start, stream=20, **where)
        capture.memcpy(at=step + 80, start=step + 640, duration=60, **where)
    return capture


@pytest.fixture
def two(tmp_path):
    with Trace(rank(200).write(tmp_path / "0.sqlite")) as early, Trace(rank(300).write(tmp_path / "1.sqlite")) as late:
        yield ranks_of([early, late])


def test_the_parts_of_a_step_and_its_communication_are_the_planted_ones(two):
    table = communication(two)
    assert table[table["step"] == 1].to_dict("records") == [
        {
            "rank": 0, "device": 0, "step": 1, "step_ns": 1000, "compute_ns": 300, "exposed_communication_ns": 250,
            "exposed_memory_ns": 50, "idle_ns": 400, "communication_ns": 450, "overlapped_ns": 200, "collectives": 2,
            "bytes": 10_000, "transfer_ns": 250, "waiting_ns": 200,
        },
        {
            "rank": 1, "device": 0, "step": 1, "step_ns": 1000, "compute_ns": 300, "exposed_communication_ns": 150,
            "exposed_memory_ns": 50, "idle_ns": 500, "communication_ns": 250, "overlapped_ns": 100, "collectives": 2,
            "bytes": 10_000, "transfer_ns": 250, "waiting_ns": 0,
        },
    ]  # fmt: skip


def test_one_capture_of_both_processes_gives_the_same(two, tmp_path):
    both = rank(300, process=9, device=1, into=rank(200, process=7, device=0))
    with Trace(both.write(tmp_path / "both.sqlite")) as trace:
        table, single = communication(ranks_of([trace])), collectives(ranks_of([trace]))
    assert table["device"].tolist() == [0, 0, 1, 1]
    pd.testing.assert_frame_equal(table.drop(columns="device"), communication(two).drop(columns="device"))
    pd.testing.assert_frame_equal(single.drop(columns="device"), collectives(two).drop(columns="device"))


def test_a_collective_is_split_into_transfer_and_waiting_and_has_its_bandwidth(two):
    table = collectives(two)
    first = table[(table["step"] == 0) & (table["number"] == 0)]
    assert first[["rank", "duration_ns", "transfer_ns", "waiting_ns", "exposed_ns"]].values.tolist() == [
        [0, 300, 200, 100, 100],
        [1, 200, 200, 0, 100],
    ]
    assert first[["operation", "bytes", "bucket", "start_ns"]].values.tolist() == [
        ["all-reduce", 8000, 0, 200],
        ["all-reduce", 8000, 0, 300],
    ]
    assert first["algorithm_gb_per_s"].tolist() == [40.0, 40.0]
    assert first["bus_gb_per_s"].tolist() == [40.0, 40.0]  # × 2(n − 1)/n, which is 1 for two


def test_one_rank_alone_has_no_transfer_and_no_waiting(tmp_path):
    with Trace(rank(200).write(tmp_path / "0.sqlite")) as trace:
        table = collectives(ranks_of([trace]))
    assert len(table) == 4
    assert table[["transfer_ns", "waiting_ns", "bus_gb_per_s"]].isna().all(axis=None)


def test_bytes_that_no_range_names_are_missing_and_so_is_the_bandwidth(tmp_path):
    names = ("all-reduce", "anything")
    with (
        Trace(rank(200, sizes=names).write(tmp_path / "0.sqlite")) as one,
        Trace(rank(300, sizes=names).write(tmp_path / "1.sqlite")) as other,
    ):
        ranks = ranks_of([one, other])
        table, steps = collectives(ranks), communication(ranks)
    assert table[["bytes", "bus_gb_per_s"]].isna().all(axis=None)
    assert table["transfer_ns"].notna().all()
    assert steps["bytes"].isna().all()


def test_where_ranks_ran_different_collectives_nothing_is_compared(two, tmp_path):
    more = rank(250).kernel(NCCL, at=75, start=900, duration=20, stream=20)
    with Trace(more.write(tmp_path / "2.sqlite")) as trace:
        ranks = ranks_of([*(one.trace for one in two), trace])
        table = collectives(ranks)
        assert unmatched_steps(ranks) == [0]
    assert table.groupby("step")["transfer_ns"].agg(lambda column: column.notna().all()).to_dict() == {
        0: False,
        1: True,
    }


def test_a_program_that_runs_ahead_has_steps_from_first_start_to_first_start(tmp_path):
    capture = Synthetic()
    for step in range(3):
        capture.range("step", 10 * step, 10 * step + 10)
        capture.kernel("gemm", at=10 * step + 1, start=100 + 50 * step, duration=30)
        capture.kernel(NCCL, at=10 * step + 2, start=120 + 50 * step, duration=20, stream=9)
    with Trace(capture.write(tmp_path / "ahead.sqlite")) as trace:
        table = communication(ranks_of([trace]))
    assert table["step_ns"].tolist() == [50, 50, 40]
    assert table["idle_ns"].tolist() == [10, 10, 0]
    assert table["exposed_communication_ns"].tolist() == [10, 10, 10]


LENGTH, KINDS = 60, ("gemm", NCCL, "memset")


def drawn(seed: int) -> tuple[Synthetic, list[tuple[str, int, int, int]]]:
    """A capture of two steps of LENGTH ns with work anywhere in them, and that work: kind, device, start, end."""
    random, capture, work = np.random.default_rng(seed), Synthetic(), []
    for step in (0, LENGTH):
        capture.range("step", step, step + LENGTH)
        for _ in range(random.integers(1, 12)):
            kind, device = KINDS[random.integers(3)], int(random.integers(2))
            start = int(random.integers(1, LENGTH))
            end = int(random.integers(start, LENGTH)) + 1
            where = {
                "start": step + start,
                "duration": end - start,
                "device": device,
                "stream": int(random.integers(3)),
            }
            if kind == "memset":
                capture.memset(at=step, **where)
            else:
                capture.kernel(kind, at=step, **where)
            work.append((kind, device, step + start, step + end))
    return capture, work


@pytest.mark.parametrize("seed", range(60))
def test_exposure_and_overlap_are_those_of_single_nanoseconds(seed, tmp_path):
    capture, work = drawn(seed)
    with Trace(capture.write(tmp_path / "drawn.sqlite")) as trace:
        table = communication(ranks_of([trace]))
    for row in table.to_dict("records"):
        runs = {kind: set() for kind in KINDS}
        for kind, device, start, end in work:
            if device == row["device"]:
                runs[kind] |= set(range(start, end)) & set(range(row["step"] * LENGTH, (row["step"] + 1) * LENGTH))
        compute, transfers, memory = (runs[kind] for kind in KINDS)
        assert row["compute_ns"] == len(compute)
        assert row["communication_ns"] == len(transfers)
        assert row["overlapped_ns"] == len(transfers & compute)
        assert row["exposed_communication_ns"] == len(transfers - compute)
        assert row["exposed_memory_ns"] == len(memory - compute - transfers)
        assert row["idle_ns"] == LENGTH - len(compute | transfers | memory)


def test_parts_that_are_not_the_step_raise(two, monkeypatch):
    monkeypatch.setattr(steps_of_ranks, "difference", lambda one, *others: one)
    with pytest.raises(NotConserved):
        communication(two)


def test_parts_are_named_as_columns():
    assert list(PART_COLUMNS.values()) == ["compute_ns", "exposed_communication_ns", "exposed_memory_ns", "idle_ns"]


def test_operations_are_read_from_kernels_of_nccl_and_gloo():
    names = (NCCL, "ncclKernel_ReduceScatter_RING_LL_Sum_half", "gloo:all_reduce", "ncclDevKernel_Generic(x)", "gemm")
    assert [operation_of(name) for name in names] == ["all-reduce", "reduce-scatter", "all-reduce", None, None]


def test_the_innermost_range_that_names_a_collective_tells_of_it():
    assert parse_range_path(("step", BUCKETS[1], "ncclAllReduce")) == ("all-reduce", 2000, 1)
    assert parse_range_path(("all-gather, bytes = 5", "all_reduce")) == ("all-reduce", None, None)
    assert parse_range_path(("all-reduce, bucket = 3", "all-reduce, bytes = 5")) == ("all-reduce", 5, 3)
    assert parse_range_path(("step", "reduced precision")) == (None, None, None)


def test_the_factor_of_the_bus_is_that_of_ncclys_tests():
    assert [bus_factor("all-reduce", n) for n in (2, 4)] == [1.0, 1.5]
    assert [bus_factor(name, 4) for name in ("all-gather", "reduce-scatter", "broadcast", "unknown")] == [
        0.75, 0.75, 1.0, None,
    ]  # fmt: skip


@pytest.mark.parametrize("table", [[], ["--collectives"]])
def test_the_command_says_that_bytes_are_missing_and_how_they_would_be_there(tmp_path, capsys, table):
    nccl_alone = "all-reduce, bytes = 8000", "ncclAllReduce"
    for name, sizes in (("named", BUCKETS), ("not_named", nccl_alone)):
        capture = rank(300, process=2, into=rank(200, sizes=sizes), device=1, sizes=sizes)
        assert main(["communication", str(capture.write(tmp_path / f"{name}.sqlite")), *table]) == 0
        said = "bytes and bandwidth are missing for collectives without a 'bytes = …' range"
        assert (said in capsys.readouterr().err) == (name == "not_named")


@pytest.mark.parametrize("made", [Synthetic(), Synthetic().range("step", 0, 10)], ids=["nothing", "an empty step"])
def test_a_capture_in_which_nothing_ran_has_no_rows_and_the_command_says_so(tmp_path, capsys, made):
    capture = str(made.write(tmp_path / "capture.sqlite"))
    assert main(["communication", capture, "--format", "csv"]) == 0
    told = capsys.readouterr()
    assert told.out.startswith("rank,device,step,step_ns,") and told.out.count("\n") == 1
    assert "nothing ran on a device in a range 'step'" in told.err
    assert main(["communication", capture, "--collectives"]) == 0
