"""The embedded capture: from traces written out in the test, and from a real window of PyTorch's profiler."""

import json
import sqlite3

import pytest
import torch
from torch.autograd.profiler import profile, record_function

from kernel_tables.global_ids import global_thread
from kernel_tables.kineto.capture import (
    CaptureError,
    capture_tables,
    copy_kind,
    export_capture,
    outermost_operators,
    short_name,
    write_capture,
)
from kernel_tables.kineto.capture_schema import SCHEMA
from kernel_tables.kineto.trace import ANNOTATION, OPERATOR, TorchTrace
from tests.kernel_tables.kineto_events import FILL, KERNEL, event, rows_of, trace_of

COPY = {"device": 0, "context": 1, "stream": 7, "bytes": 4096}


KINDS = (OPERATOR, ANNOTATION)


def operators_of(trace: TorchTrace) -> list[tuple]:
    """The outermost operators: name, thread, start and end."""
    rows, columns = outermost_operators(trace), trace[OPERATOR]
    names = [trace.names_of(OPERATOR)[row] for row in rows]
    threads = [thread & 0xFFFFFF for thread in columns["thread"][rows].tolist()]
    return list(zip(names, threads, columns["start"][rows].tolist(), columns["end"][rows].tolist(), strict=True))


def names_of(tables: dict) -> dict[int, str]:
    return {row["id"]: row["value"] for row in tables["StringIds"]}


def test_times_are_integer_nanoseconds_since_the_first_event(tmp_path):
    first = event("user_annotation", "measure", 4377358322185.092, 6230.385)
    second = event("cpu_op", "aten::mm", 4377358322436.5, 7)
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [second, first]}))
    trace = TorchTrace(path)
    times = {kind: (trace.names_of(kind), trace[kind]["start"].tolist(), trace[kind]["end"].tolist()) for kind in KINDS}
    assert times == {
        OPERATOR: (["aten::mm"], [251_408], [258_408]),
        ANNOTATION: (["measure"], [0], [6_230_385]),
    }


def test_an_operator_inside_another_is_part_of_it_and_autograds_nodes_are_none(tmp_path):
    trace = trace_of(
        tmp_path,
        event("cpu_op", "aten::linear", 0, 10),
        event("cpu_op", "aten::t", 1, 2),
        event("cpu_op", "aten::addmm", 4, 6),
        event("cpu_op", "autograd::engine::evaluate_function: MmBackward0", 10, 20),
        event("cpu_op", "MmBackward0", 11, 18),
        event("cpu_op", "aten::mm", 12, 3),
        event("cpu_op", "aten::mm", 15, 4),
        event("cpu_op", "aten::relu", 5, 3, thread=12),
    )
    assert operators_of(trace) == [
        ("aten::linear", 11, 0, 10_000),
        ("aten::relu", 12, 5_000, 8_000),
        ("aten::mm", 11, 12_000, 15_000),
        ("aten::mm", 11, 15_000, 19_000),
    ]


def test_a_fused_kernel_of_a_compiled_program_counts_as_an_operator_and_its_graph_does_not(tmp_path):
    trace = trace_of(
        tmp_path,
        event("cpu_op", "Torch-Compiled Region: 0/0", 0, 20),
        event("cpu_op", "graph_0_cpp_fused_mul_silu_3", 1, 5),
        event("cpu_op", "aten::mm", 7, 4),
    )
    assert operators_of(trace) == [
        ("graph_0_cpp_fused_mul_silu_3", 11, 1_000, 6_000),
        ("aten::mm", 11, 7_000, 11_000),
    ]


def test_of_two_operators_with_equal_times_the_one_that_began_first_is_outermost(tmp_path):
    inner = event("cpu_op", "aten::view", 0, 1, **{"External id": 8})
    outer = event("cpu_op", "aten::reshape", 0, 1, **{"External id": 7})
    assert [name for name, *_ in operators_of(trace_of(tmp_path, inner, outer))] == ["aten::reshape"]


def test_a_cpu_operator_becomes_a_kernel_and_its_launch(tmp_path):
    tables = rows_of(trace_of(tmp_path, event("cpu_op", "aten::mm", 100, 2.5)), on_gpu=False)
    (kernel,), (launch,) = tables["CUPTI_ACTIVITY_KIND_KERNEL"], tables["CUPTI_ACTIVITY_KIND_RUNTIME"]
    assert (kernel["start"], kernel["end"]) == (launch["start"], launch["end"]) == (0, 2_500)
    assert kernel["correlationId"] == launch["correlationId"]
    assert (kernel["deviceId"], kernel["streamId"]) == (-1, 11)
    assert launch["globalTid"] == (5 << 24) + 11
    assert kernel["globalPid"] == 5 << 24
    assert names_of(tables)[kernel["demangledName"]] == "aten::mm"


def test_a_collective_of_gloo_is_work_of_the_call_that_started_it_and_no_range(tmp_path):
    trace = trace_of(
        tmp_path,
        event("user_annotation", "gloo:all_reduce", 1, 2, thread=21),  # begun before the first call that is recorded
        event("cpu_op", "aten::mm", 0, 9),
        event("user_annotation", "all-reduce, bytes = 8", 10, 4),
        event("cpu_op", "c10d::allreduce_", 11, 1),
        event("cpu_op", "c10d::allreduce_", 12, 1, thread=12),
        event("cpu_op", "c10d::broadcast_", 13, 1),
        event("user_annotation", "gloo:all_reduce", 15, 30, thread=22),
        event("user_annotation", "gloo:broadcast", 16, 1, thread=21),
        event("user_annotation", "gloo:all_reduce", 14, 8, thread=21),
    )
    tables = rows_of(trace, on_gpu=False)
    names, calls = names_of(tables), {row["correlationId"]: row for row in tables["CUPTI_ACTIVITY_KIND_RUNTIME"]}
    work = [
        (names[row["demangledName"]], row["start"], row["end"], row["streamId"], calls.get(row["correlationId"]))
        for row in tables["CUPTI_ACTIVITY_KIND_KERNEL"]
    ]
    assert [(*head, call and call["start"], call and call["globalTid"] & 0xFF) for *head, call in work] == [
        ("aten::mm", 0, 9_000, 11, 0, 11),
        ("gloo:all_reduce", 1_000, 3_000, 21, None, None),
        ("gloo:all_reduce", 14_000, 22_000, 21, 11_000, 11),
        ("gloo:all_reduce", 15_000, 45_000, 22, 12_000, 12),
        ("gloo:broadcast", 16_000, 17_000, 21, 13_000, 11),
    ]
    assert [row["text"] for row in tables["NVTX_EVENTS"]] == ["all-reduce, bytes = 8"]


def test_calls_of_one_tensor_are_what_gloo_runs_for_them(tmp_path):
    trace = trace_of(
        tmp_path,
        event("cpu_op", "c10d::_allgather_base_", 1, 1),
        event("cpu_op", "c10d::_reduce_scatter_base_", 3, 1),
        event("user_annotation", "gloo:all_gather", 5, 2, thread=21),
        event("user_annotation", "gloo:all_reduce", 8, 2, thread=21),
    )
    tables = rows_of(trace, on_gpu=False)
    calls = {row["correlationId"]: row["start"] for row in tables["CUPTI_ACTIVITY_KIND_RUNTIME"]}
    started = [calls.get(row["correlationId"]) for row in tables["CUPTI_ACTIVITY_KIND_KERNEL"]]
    assert started == [0, 2_000]


def test_a_capture_says_when_its_clock_was_zero(tmp_path):
    path = tmp_path / "trace.json"
    events = [event("cpu_op", "aten::mm", 5.5, 7)]
    path.write_text(json.dumps({"baseTimeNanoseconds": 1_790_857_026_000_000_000, "traceEvents": events}))
    tables = rows_of(TorchTrace(path), on_gpu=False)
    assert tables["TARGET_INFO_SESSION_START_TIME"] == [{"utcEpochNs": 1_790_857_026_000_005_500}]


def test_a_gpu_trace_keeps_kernels_copies_fills_calls_and_ranges(tmp_path):
    trace = trace_of(
        tmp_path,
        event("user_annotation", "forward", 0, 50),
        event("gpu_user_annotation", "forward", 20, 50, thread=7, pid=0),
        event("cpu_op", "aten::zeros", 1, 9),
        event("cuda_runtime", "cudaLaunchKernel", 2, 3, correlation=41, cbid=211),
        event("cuda_driver", "cuLaunchKernelEx", 6, 3, thread=12, correlation=42),
        event("cuda_runtime", "cudaMemcpyAsync", 10, 1, correlation=43),
        event("cuda_runtime", "cudaMemsetAsync", 12, 1, correlation=44),
        event("kernel", FILL, 20, 5, thread=7, pid=0, correlation=41, **KERNEL),
        event("kernel", "nvjet_tst_128x64", 25, 6, thread=7, pid=0, correlation=42, **KERNEL),
        event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 31, 1, thread=7, pid=0, correlation=43, **COPY),
        event("gpu_memset", "Memset (Device)", 32, 1, thread=7, pid=0, correlation=44, **COPY),
        devices=({"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150_109_880_320, "numSms": 132},),
    )
    tables = rows_of(trace, on_gpu=True)
    names = names_of(tables)
    assert [
        (names[row["demangledName"]], names[row["shortName"]], row["start"], row["end"], row["correlationId"])
        for row in tables["CUPTI_ACTIVITY_KIND_KERNEL"]
    ] == [
        (FILL, "vectorized_elementwise_kernel", 20_000, 25_000, 41),
        ("nvjet_tst_128x64", "nvjet_tst_128x64", 25_000, 31_000, 42),
    ]
    assert [
        (names[row["nameId"]], row["globalTid"] & 0xFFFFFF, row["correlationId"])
        for row in tables["CUPTI_ACTIVITY_KIND_RUNTIME"]
    ] == [
        ("cudaLaunchKernel", 11, 41),
        ("cuLaunchKernelEx", 12, 42),
        ("cudaMemcpyAsync", 11, 43),
        ("cudaMemsetAsync", 11, 44),
    ]
    (copy,), (fill,) = tables["CUPTI_ACTIVITY_KIND_MEMCPY"], tables["CUPTI_ACTIVITY_KIND_MEMSET"]
    assert (copy["bytes"], copy["copyKind"], copy["start"], copy["globalPid"]) == (4096, 1, 31_000, 5 << 24)
    assert (fill["bytes"], fill["correlationId"]) == (4096, 44)
    assert [(row["text"], row["eventType"], row["start"]) for row in tables["NVTX_EVENTS"]] == [("forward", 59, 0)]
    assert [(row["id"], row["name"], row["smCount"]) for row in tables["TARGET_INFO_GPU"]] == [(0, "NVIDIA H200", 132)]
    assert tables["CUPTI_ACTIVITY_KIND_KERNEL"][0].items() >= {"gridX": 2, "blockX": 128, "streamId": 7}.items()


def test_steps_of_a_schedule_of_the_program_do_not_divide_the_steps_of_the_recorder(tmp_path):
    operator = event("cpu_op", "aten::mul", 1, 2)
    steps = [event("user_annotation", f"ProfilerStep#{number}", 10 * number, 10) for number in range(2)]
    for more, names in (([event("user_annotation", "step", 0, 15)], ["step"]), ([], [step["name"] for step in steps])):
        tables = rows_of(trace_of(tmp_path, operator, *steps, *more), on_gpu=False)
        assert [row["text"] for row in tables["NVTX_EVENTS"]] == names


@pytest.mark.parametrize(("on_gpu", "missing"), [(True, "no kernel"), (False, "no ATen operator")])
def test_a_window_in_which_nothing_was_recorded_is_an_error(tmp_path, on_gpu, missing):
    with pytest.raises(CaptureError, match=f"recorded 1 events and {missing}"):
        capture_tables(trace_of(tmp_path, event("user_annotation", "measure", 0, 1)), on_gpu, torch_version="2")


@pytest.mark.parametrize(
    ("name", "kind"),
    [("Memcpy HtoD (Pinned -> Device)", 1), ("Memcpy DtoH (Device -> Pageable)", 2), ("Memcpy DtoD (x)", 8), ("?", 0)],
)
def test_a_copys_direction_is_read_from_its_name(name, kind):
    assert copy_kind(name) == kind


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (FILL, "vectorized_elementwise_kernel"),
        ("void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::X<4u>, 64>(float*)", "CatArrayBatchedCopy"),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>(Params)", "Kernel2"),
        ("void <unnamed>::softmax_warp_forward<float, (int)6>(T2 *)", "softmax_warp_forward"),
        ("sm80_xmma_gemm_f32f32_tn", "sm80_xmma_gemm_f32f32_tn"),
    ],
)
def test_the_short_name_is_the_bare_function(name, short):
    assert short_name(name) == short


def test_the_written_file_has_every_table_even_the_empty_ones(tmp_path):
    path = tmp_path / "capture.sqlite"
    write_capture(capture_tables(trace_of(tmp_path, event("cpu_op", "aten::mm", 0, 1)), False, "2.13.0"), path)
    with sqlite3.connect(path) as connection:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        metadata = dict(connection.execute("SELECT name, value FROM META_DATA_EXPORT"))
    connection.close()
    assert tables == set(SCHEMA)
    assert metadata["CAPTURE_BACKEND"] == "torch"
    assert metadata["EXPORT_SCHEMA_VERSION"] == "3.20.0"


def test_a_capture_says_when_it_ended_so_that_no_later_time_is_believed(tmp_path):
    trace = trace_of(tmp_path, event("cpu_op", "aten::mm", 5, 2), event("cpu_op", "aten::add", 9, 4))
    (bounds,) = rows_of(trace, on_gpu=False)["ANALYSIS_DETAILS"]
    assert (bounds["startTime"], bounds["stopTime"], bounds["duration"]) == (0, 8000, 8000)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A real window: the profiler's own events, and the rows of the file that was made of them."""
    weight, x = torch.randn(16, 16, requires_grad=True), torch.randn(4, 16)
    path = tmp_path_factory.mktemp("real") / "capture.sqlite"
    with profile(use_kineto=True) as recording, record_function("step"):
        with record_function("forward"):
            loss = torch.nn.functional.linear(x, weight).relu().sum()
        with record_function("backward"):
            loss.backward()
    export_capture(recording, path, False, torch.__version__)
    connection = sqlite3.connect(path)
    yield recording.kineto_results.events(), connection
    connection.close()


def test_operator_time_equals_that_of_the_profilers_own_events(recorded):
    events, connection = recorded
    operators = [(e.start_ns(), e.end_ns(), e.start_thread_id()) for e in events if e.name().startswith("aten::")]

    def inside_another(one: tuple) -> bool:
        return any(
            other is not one and other[2] == one[2] and other[0] <= one[0] and one[1] <= other[1] for other in operators
        )

    expected = sum(one[1] - one[0] for one in operators if not inside_another(one))
    (found,) = connection.execute("SELECT sum(end - start) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
    assert found == expected > 0


def test_every_kernel_row_of_a_real_window_has_one_launch_row(recorded):
    _, connection = recorded
    (kernels,) = connection.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
    (joined,) = connection.execute(
        "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN CUPTI_ACTIVITY_KIND_RUNTIME r"
        " ON r.correlationId = k.correlationId AND r.globalTid >> 24 = k.globalPid >> 24"
    ).fetchone()
    assert joined == kernels > 0


def test_ranges_of_a_real_window_nest(recorded):
    _, connection = recorded
    ranges = {text: (start, end) for text, start, end in connection.execute("SELECT text, start, end FROM NVTX_EVENTS")}
    assert set(ranges) == {"step", "forward", "backward"}
    assert ranges["step"][0] <= ranges["forward"][0] < ranges["forward"][1] <= ranges["backward"][0]
    assert ranges["backward"][1] <= ranges["step"][1]


def test_global_thread_packs_process_and_thread_like_nsys():
    assert global_thread(510, 444) == 510 * 2**24 + 444
