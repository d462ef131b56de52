"""What NCCL's own calls tell: bytes and communicators, of a real capture and of made-up ones."""

import re
import sqlite3
import struct
from contextlib import closing
from pathlib import Path

import pytest

from kernel_tables.__main__ import main
from kernel_tables.ranks.collectives import CollectiveRequest, collectives, match_requests, unmatched_steps
from kernel_tables.ranks.ranks import ranks_of
from kernel_tables.reading.nccl_calls import NcclCall, bytes_of, layouts_in, payload_fields, publishable_payload
from kernel_tables.reading.publishable import write_publishable
from kernel_tables.trace import Trace
from tests.kernel_tables.synthetic import Synthetic, changed

REAL = Path(__file__).parents[2] / "captures" / "nccl_2025.3.1.sqlite.gz"
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
# what PyTorch was given is the part of one rank for these, and of an all-to-all the whole
OPERATIONS = {
    "all_reduce": ("all-reduce", 1), "all_reduce_bf16": ("all-reduce", 1), "coalesced": ("all-reduce", 1),
    "barrier": ("all-reduce", 1), "broadcast": ("broadcast", 1), "reduce": ("reduce", 1),
    "all_gather": ("all-gather", 2), "list_gather": ("all-gather", 2), "reduce_scatter": ("reduce-scatter", 2),
    "all_to_all": ("all-to-all", 1), "send_recv": ("send-recv", 1),
}  # fmt: skip


@pytest.fixture(scope="module")
def real():
    with Trace(REAL) as trace:
        yield trace


@pytest.mark.parametrize("name", OPERATIONS)
def test_bytes_are_those_that_the_program_gave_on_an_h200(real, name):
    given = {text: int(text.split()[2]) for text in real.range_names if re.match(rf"known {name} ", text)}
    ((text, size),) = given.items()
    operation, parts = OPERATIONS[name]
    table = collectives(ranks_of([real]), step_name=text)
    assert table[["rank", "operation", "bytes"]].values.tolist() == [
        [0, operation, parts * size],
        [1, operation, parts * size],
    ]
    assert table["transfer_ns"].notna().all()


def test_a_step_of_fsdp_gathers_and_scatters_every_layer(real):
    table = collectives(ranks_of([real]), step_name="fsdp")
    layer = 2048 * 2048 * 4
    counts = table.groupby(["rank", "operation"])["bytes"].agg(["size", "min", "max"])
    # three layers, gathered before forward and before backward, and scattered once
    for rank in range(2):
        assert counts.loc[(rank, "all-gather")].tolist() == [6, layer, layer]
        assert counts.loc[(rank, "reduce-scatter")].tolist() == [3, layer, layer]
    assert (table["bus_gb_per_s"] / table["algorithm_gb_per_s"]).round(12).eq(0.5).all()


def both(into, *ranks_calls, kernels=1):
    """Two ranks on two devices, one step each, in which they make their calls."""
    for process, calls in enumerate(ranks_calls, 1):
        into.range("step", 0, 1000, process=process)
        for name, start, end, size, communicator in calls:
            into.nccl(name, start, end, size, communicator, process=process)
    return into


def table_of(made, tmp_path):
    with Trace(made.write(tmp_path / "capture.sqlite")) as trace:
        return collectives(ranks_of([trace]))


def test_a_group_launches_what_its_calls_ask_for_together(tmp_path):
    group = [
        ("ncclGroupStart", 10, 11, None, 0), ("ncclGroupStart", 12, 13, None, 0), ("ncclAllReduce", 14, 15, 1000, 7),
        ("ncclAllReduce", 16, 17, 500, 7), ("ncclGroupEnd", 18, 19, None, 0), ("ncclGroupEnd", 20, 30, None, 0),
    ]  # fmt: skip
    made = both(Synthetic(), group, group)
    for process in (1, 2):
        made.kernel(NCCL, at=25, process=process, device=process, duration=100 * process)
    table = table_of(made, tmp_path)
    assert table[["operation", "bytes", "transfer_ns"]].values.tolist() == [["all-reduce", 1500, 100]] * 2


def test_of_several_kernels_of_one_group_no_bytes_are_known(tmp_path):
    group = [("ncclGroupStart", 10, 11, None, 0), ("ncclAllReduce", 14, 15, 1000, 7), ("ncclGroupEnd", 20, 30, None, 0)]
    made = both(Synthetic(), group)
    made.kernel(NCCL, at=22).kernel(NCCL, at=26)
    table = table_of(made, tmp_path)
    assert (table["operation"].tolist(), table["bytes"].isna().all()) == (["all-reduce", "all-reduce"], True)


CALLS = {
    "alone": ([("ncclReduce", 5, 9, 8)], 6, ("reduce", 8)),
    "outside": ([("ncclReduce", 5, 9, 8)], 9, (None, None)),
    "before all": ([("ncclReduce", 5, 9, 8)], 4, (None, None)),
    "of a kind that is not known": ([("ncclNew", 5, 9, 8)], 5, (None, 8)),
    "without a payload": ([("ncclReduce", 5, 9, None)], 5, ("reduce", None)),
    "of several kinds": (
        [("ncclGroupStart", 1, 2, None), ("ncclSend", 3, 4, 8), ("ncclReduce", 5, 6, 8), ("ncclGroupEnd", 7, 9, None)],
        8,
        (None, 16),
    ),
    "both ways": (
        [("ncclGroupStart", 1, 2, None), ("ncclSend", 3, 4, 8), ("ncclRecv", 5, 6, 3), ("ncclGroupEnd", 7, 9, None)],
        8,
        ("send-recv", 11),
    ),
    "of which one does not tell": (
        [("ncclGroupStart", 1, 2, None), ("ncclSend", 3, 4, 8), ("ncclRecv", 5, 6, None), ("ncclGroupEnd", 7, 9, None)],
        8,
        ("send-recv", None),
    ),
    "begun before the capture": ([("ncclSend", 3, 4, 8), ("ncclGroupEnd", 7, 9, None)], 8, (None, None)),
    "behind one begun before": ([("ncclGroupEnd", 1, 2, None), ("ncclReduce", 5, 9, 8)], 5, ("reduce", 8)),
    "that calls others": (
        [("ncclAlltoAll", 1, 9, 8), ("ncclGroupStart", 2, 3, None), ("ncclSend", 4, 5, 1)],
        6,
        ("all-to-all", 8),
    ),
    "that calls others in a group": (
        [("ncclGroupStart", 0, 1, None), ("ncclAlltoAll", 2, 9, 8), ("ncclSend", 4, 5, 1), ("ncclGroupEnd", 10, 12, 0)],
        11,
        ("all-to-all", 8),
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", CALLS)
def test_what_a_kernel_was_asked_for_by_a_call(what):
    calls, at_ns, (operation, size) = CALLS[what]
    made = [NcclCall(start, end, 1, name, given, 7) for name, start, end, given in calls]
    (found,) = match_requests(made, [(1, at_ns)])
    assert found[:2] == (operation, size)
    assert match_requests(made, [(2, at_ns)]) == [CollectiveRequest()]  # another thread


def test_collectives_of_two_communicators_are_matched_each_by_itself(tmp_path):
    """Ranks 0 and 1 reduce among themselves, 2 and 3 too, and all four together: the order differs between pairs."""
    made = Synthetic()
    for number in range(4):
        process, pair = number + 1, 100 + number // 2
        made.range("step", 0, 1000, process=process)
        order = [(pair, 1000), (50, 4000)] if number < 2 else [(50, 4000), (pair, 1000), (pair, 1000)]
        for place, (communicator, size) in enumerate(order):
            at = 10 + 20 * place
            made.nccl("ncclAllReduce", at, at + 10, size, communicator, process=process)
            duration = size // 10 + 10 * number
            made.kernel(
                NCCL, at=at + 1, start=300 * place + 50, duration=min(duration, 200), process=process, device=number
            )
    with Trace(made.write(tmp_path / "capture.sqlite")) as trace:
        ranks = ranks_of([trace])
        table = collectives(ranks)
        assert unmatched_steps(ranks) == []
    pairs = table[table["bytes"] == 1000]
    assert pairs["transfer_ns"].tolist() == [100, 100, 120, 120, 120, 120]
    assert pairs["waiting_ns"].tolist() == [0, 10, 0, 0, 10, 10]
    assert (pairs["bus_gb_per_s"] / pairs["algorithm_gb_per_s"]).eq(1.0).all()  # of two ranks
    of_all = table[table["bytes"] == 4000]
    assert of_all["transfer_ns"].tolist() == [200] * 4
    assert (of_all["bus_gb_per_s"] / of_all["algorithm_gb_per_s"]).eq(1.5).all()  # of four


def test_a_rank_of_a_communicator_that_ran_less_leaves_its_step_unmatched(tmp_path):
    call = ("ncclAllReduce", 10, 20, 1000, 7)
    made = both(Synthetic(), [call, ("ncclAllReduce", 30, 40, 1000, 7)], [call])
    made.kernel(NCCL, at=11).kernel(NCCL, at=31).kernel(NCCL, at=11, process=2, device=1)
    with Trace(made.write(tmp_path / "capture.sqlite")) as trace:
        assert unmatched_steps(ranks_of([trace])) == [0]


def test_a_range_that_names_bytes_is_believed_first(tmp_path):
    made = both(Synthetic(), [("ncclAllReduce", 10, 20, 1000, 7)])
    made.range("all-reduce, bytes = 64", 5, 25).kernel(NCCL, at=11)
    assert table_of(made, tmp_path)["bytes"].tolist() == [64]


ENTRY = ((3, 5, "Message size [bytes]", 22, 8), (3, 5, "NCCL communicator ID", 18, None))


def payload(data, domain=3, layout=5, begin=32, size=None):
    return struct.pack("<QQQQ", domain, layout, len(data) if size is None else size, begin) + data


WHOLE = payload(struct.pack("<QQQ", 7, 1 << 20, 0xABCDEF))


@pytest.mark.parametrize(
    "damaged",
    [
        None, 5, "text", b"", WHOLE[:-1], WHOLE + b"x", WHOLE[:31], payload(b"1234567"), payload(b"12345678", begin=31),
        payload(b"12345678", size=1 << 63), payload(WHOLE, layout=6), payload(WHOLE, domain=4),
    ],
)  # fmt: skip
def test_what_is_no_payload_of_a_call_tells_no_bytes(damaged):
    assert bytes_of(payload_fields(damaged, layouts_in(ENTRY))) is None
    assert publishable_payload(damaged, layouts_in(())) is None


def test_a_payload_tells_what_its_layout_names_and_no_more_of_it_is_published():
    known = layouts_in(ENTRY)
    assert payload_fields(WHOLE, known) == {"Message size [bytes]": 1 << 20, "NCCL communicator ID": 7}
    published = publishable_payload(WHOLE, known)
    assert (payload_fields(published, known), published[-8:]) == (payload_fields(WHOLE, known), bytes(8))
    assert (
        bytes_of(payload_fields(payload(struct.pack("<QQ", 7, 1 << 63)), known)) is None
    )  # more than there is in the world


@pytest.mark.parametrize(
    "entry",
    [
        (3, 5, "Message size [bytes]", 22, 16), (3, 5, "Message size [bytes]", 22, -8),
        (3, 5, "Message size [bytes]", 22, "8"), (3, 5, "Message size [bytes]", 22, 1 << 40),
    ],
)  # fmt: skip
def test_a_layout_that_is_told_in_two_ways_or_cannot_be_is_not_used(entry):
    assert layouts_in([*ENTRY, entry]) == {}
    assert layouts_in([(3, 5, "Message size [bytes]", 5, 8)]) == {}  # not a number of 8 bytes


def test_of_a_capture_that_is_published_bytes_stay_and_nothing_else_of_payloads(tmp_path):
    made = both(Synthetic(), [("ncclAllReduce", 10, 20, 1000, 7)]).kernel(NCCL, at=11)
    made.rows["NVTX_PAYLOAD_SCHEMA_ENTRIES"].append({"domainId": 9, "schemaId": 9, "type": 1, "name": "canary-s3cr3t"})
    source = made.write(tmp_path / "source.sqlite")
    changed(source, "UPDATE NVTX_EVENTS SET binaryData = CAST('canary-s3cr3t' AS BLOB) WHERE text = 'step'")
    write_publishable(source, tmp_path / "published.sqlite")
    with Trace(tmp_path / "published.sqlite") as trace:
        assert collectives(ranks_of([trace]))["bytes"].tolist() == [1000]
    told_of = (tmp_path / "published.sqlite").read_bytes()
    assert b"s3cr3t" not in told_of
    assert struct.pack("<I", 0xABCD) not in told_of  # what was in the gap


def test_of_a_capture_that_is_published_for_one_process_nothing_of_another_stays(tmp_path):
    made = both(Synthetic(), [("ncclAllReduce", 10, 20, 1000, 7)], [("ncclBroadcast", 10, 20, 500, 7)])
    made.kernel(NCCL, at=11).kernel("gemm_of_another", at=11, process=2, device=1)
    made.diagnostic(2, "of both").diagnostic(2, "of another alone", process=2)
    source = made.write(tmp_path / "source.sqlite")
    write_publishable(source, tmp_path / "published.sqlite", process=1)
    with Trace(tmp_path / "published.sqlite") as trace:
        assert len(ranks_of([trace])) == 1
        assert trace.kernels()["kernel"].tolist() == [NCCL]
        assert [text for _, text, _ in trace.capture.diagnostics()] == ["of both"]
    with closing(sqlite3.connect(tmp_path / "published.sqlite")) as database:
        assert database.execute("SELECT count(*) FROM StringIds WHERE value = 'gemm_of_another'").fetchone() == (0,)


@pytest.mark.parametrize("size", [1 << 44, (1 << 44) + 1, 1 << 62, (1 << 64) - 1])
def test_sizes_that_no_message_has_are_missing_and_no_sum_of_others_overflows(tmp_path, size):
    calls = [("ncclGroupStart", 1, 2, None, 0), ("ncclAllGather", 3, 4, size, 7), ("ncclAllGather", 5, 6, size, 7)]
    calls += [("ncclGroupEnd", 7, 9, None, 0), ("ncclAllGather", 11, 19, size, 7)]
    made = both(Synthetic(), calls, calls)
    for process in (1, 2):
        made.kernel(NCCL, at=8, process=process, device=process).kernel(NCCL, at=12, process=process, device=process)
    made.write(tmp_path / "capture.sqlite")
    with Trace(tmp_path / "capture.sqlite") as trace:
        found = collectives(ranks_of([trace]))["bytes"]
    assert found.isna().tolist() == [True, size > 1 << 44] * 2
    assert found.dropna().tolist() == [2 * size] * (2 if size == 1 << 44 else 0)


def test_what_one_rank_alone_gathers_is_not_known_and_what_it_reduces_is(tmp_path):
    made = both(Synthetic(), [("ncclAllGather", 10, 20, 1000, 7), ("ncclAllReduce", 30, 40, 500, 7)])
    made.kernel(NCCL, at=11).kernel(NCCL, at=31)
    assert table_of(made, tmp_path)["bytes"].fillna(-1).tolist() == [-1, 500]


def test_where_ranks_are_lacking_nothing_is_said_of_all(tmp_path):
    calls = [("ncclAllGather", 10, 20, 1000, 7), ("ncclAllReduce", 30, 40, 500, 7)]
    made = both(Synthetic().metadata("RECORDED_RANKS", "4"), calls, calls)
    for process in (1, 2):
        made.kernel(NCCL, at=11, process=process, device=process).kernel(NCCL, at=31, process=process, device=process)
    table = table_of(made, tmp_path)
    assert table["bytes"].fillna(-1).tolist() == [-1, 500] * 2
    assert table[["transfer_ns", "waiting_ns", "bus_gb_per_s"]].isna().all(axis=None)


@pytest.mark.parametrize(("size", "kept"), [(-5, None), (1 << 44, 1 << 44), (1 << 45, None), (None, None)])
def test_what_pytorch_tells_is_held_to_what_can_be(tmp_path, size, kept):
    capture = both(Synthetic(), []).kernel(NCCL, at=11).write(tmp_path / "capture.sqlite")
    told_size = "NULL" if size is None else size
    changed(
        capture,
        "CREATE TABLE TORCH_COLLECTIVES (globalPid, correlationId, operation, bytes, communicator)",
        f"INSERT INTO TORCH_COLLECTIVES SELECT globalPid, correlationId, 'a made-up one', {told_size}, 7"
        " FROM CUPTI_ACTIVITY_KIND_KERNEL",
    )
    with Trace(capture) as trace:
        table = collectives(ranks_of([trace]))
    assert table["operation"].tolist() == ["all-reduce"]  # as the kernel's name says
    assert table["bytes"].fillna(-1).tolist() == [-1 if kept is None else kept]


def test_a_call_with_an_impossible_time_is_one_clear_line(tmp_path, capsys):
    made = both(Synthetic(), [("ncclAllReduce", 10, 20, 1000, 7)]).kernel(NCCL, at=11)
    capture = changed(made.write(tmp_path / "capture.sqlite"), "UPDATE NVTX_EVENTS SET start = 'x' WHERE domainId = 3")
    assert main(["communication", str(capture)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
