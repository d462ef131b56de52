"""What PyTorch's profiler tells of kernels of NCCL."""

import pytest

from kernel_tables.kineto.capture import capture_tables, write_capture
from kernel_tables.ranks.collectives import collectives
from kernel_tables.ranks.ranks import ranks_of
from kernel_tables.trace import Trace
from tests.kernel_tables.kineto_events import FILL, KERNEL, event, rows_of, trace_of

ASKED = {  # as PyTorch 2.11 told on two H200s
    "Collective name": "allreduce", "In msg nelems": 1 << 20, "Out msg nelems": 1 << 20, "Group size": 2,
    "dtype": "Float", "Process Group Name": "0", "Process Group Ranks": "[0, 1]", "External id": 2,
}  # fmt: skip
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


@pytest.mark.parametrize(
    ("told", "operation", "size"),
    [
        ({}, "all-reduce", 4 << 20),
        ({"Collective name": "_allgather_base", "Out msg nelems": 2 << 20}, "all-gather", 8 << 20),
        ({"Collective name": "_reduce_scatter_base", "In msg nelems": 2 << 20}, "reduce-scatter", 8 << 20),
        ({"Collective name": "all_to_all"}, "all-to-all", 4 << 20),
        ({"Collective name": "reduce", "dtype": "BFloat16"}, "reduce", 2 << 20),
        ({"Collective name": "ALLREDUCE_coalesced"}, "all-reduce", 4 << 20),
        ({"Collective name": "recv 1<-0"}, "send-recv", 4 << 20),
        ({"Collective name": "of a later version"}, None, 4 << 20),
        ({"dtype": "Float2_e1m0"}, "all-reduce", None),
        ({"In msg nelems": "many"}, "all-reduce", None),
    ],
)
def test_of_a_kernel_of_nccl_is_kept_what_pytorch_asked_for(tmp_path, told, operation, size):
    call = event("cuda_runtime", "cudaLaunchKernelExC", 0, 5, correlation=13)
    trace = trace_of(tmp_path, call, event("kernel", ALL_REDUCE, 6, 9, correlation=13, **KERNEL, **(ASKED | told)))
    (row,) = rows_of(trace, on_gpu=True)["TORCH_COLLECTIVES"]
    assert (row["correlationId"], row["operation"], row["bytes"]) == (13, operation, size)


def test_a_group_of_ranks_has_a_number_of_its_own_and_several_kernels_of_one_call_no_bytes(tmp_path):
    def launched(correlation, **told):
        return event("kernel", ALL_REDUCE, correlation, 1, correlation=correlation, **KERNEL, **(ASKED | told))

    others = launched(3, **{"External id": 4, "Process Group Ranks": "[2, 3]"})
    fill, call = event("kernel", FILL, 9, 1, correlation=5, **KERNEL), event("cpu_op", "aten::fill_", 0, 1)
    trace = trace_of(tmp_path, call, launched(1), launched(2), others, fill)
    rows = rows_of(trace, on_gpu=True)["TORCH_COLLECTIVES"]
    assert [row["bytes"] for row in rows] == [None, None, 4 << 20]
    assert rows[0]["communicator"] == rows[1]["communicator"] != rows[2]["communicator"]


def test_ranks_recorded_by_pytorchs_profiler_have_their_bytes_and_bandwidth(tmp_path):
    """Two ranks that gather 8 MiB in 10 and 12 µs."""
    captures = []
    for rank, us in enumerate((10, 12)):
        told = ASKED | {"Collective name": "_allgather_base", "Out msg nelems": 2 << 20}
        place = KERNEL | {"device": rank}
        (tmp_path / str(rank)).mkdir()
        trace = trace_of(
            tmp_path / str(rank),
            event("user_annotation", "step", 0, 100),
            event("cuda_runtime", "cudaLaunchKernelExC", 10, 5, correlation=13),
            event("kernel", "ncclDevKernel_AllGather_RING_LL(x)", 20, us, correlation=13, **place, **told),
        )
        write_capture(capture_tables(trace, on_gpu=True, torch_version="2"), tmp_path / f"{rank}.sqlite")
        captures.append(tmp_path / f"{rank}.sqlite")
    with Trace(captures[0]) as first, Trace(captures[1]) as second:
        table = collectives(ranks_of([first, second]))
    assert table[["operation", "bytes", "transfer_ns"]].values.tolist() == [["all-gather", 8 << 20, 10_000]] * 2
    assert table["bus_gb_per_s"].tolist() == [(8 << 20) / 10_000 / 2] * 2
