"""JSON of torch.profiler as captures: all formats, GPU or not, what it lacks, damage, JSON that is something else."""

import gzip
import json
import random
from collections import Counter
from pathlib import Path

import pytest

import kernel_tables
from kernel_tables import events, trace
from kernel_tables.cli import main
from kernel_tables.errors import TraceError
from tests.kernel_tables.kineto_events import KERNEL, event, written
from tests.kernel_tables.torch_formats import STYLES, kernels_by_brute_force, trace_text, write_trace

RECENT = STYLES["2026, since a base"]
REPORTS = Path(__file__).parent / "reports"
TRACES = sorted((Path(__file__).parents[1] / "captures/traces").glob("*.json.gz"))


def kernels(path: Path) -> tuple[int, int]:
    """(kernels, the sum of their durations)."""
    work = trace.read(path).activities
    is_kernel = work.kind == 0
    return int(is_kernel.sum()), int((work.end - work.start)[is_kernel].sum())


def work_of(capture) -> list[tuple]:
    """(name, start, end, device, stream, start and thread of the call) of each activity."""
    work, calls = capture.activities, capture.calls
    numbers = [calls.threads[index] & 0xFFFFFF for index in calls.thread.tolist()]
    call_of = dict(zip(calls.correlation.tolist(), zip(calls.start.tolist(), numbers, strict=True), strict=True))
    return [
        (work.names[work.name[row]], *map(int, (work.start[row], work.end[row], work.device[row])),
         int(work.stream_number[row]), *call_of.get(int(work.correlation[row]), (None, None)))
        for row in range(len(work))
    ]  # fmt: skip


def paths_of(path: Path) -> list[tuple]:
    """(name, duration, path of ranges) of all that took time, in order."""
    with kernel_tables.read(path) as profile:
        work, paths = profile.capture.activities, profile.paths
        rows = sorted(range(len(work)), key=lambda row: (work.start[row], work.end[row]))
        found = profile.attribution.path
        return [(work.names[work.name[row]], int(work.end[row] - work.start[row]), paths[found[row]]) for row in rows]


# Formats


@pytest.mark.parametrize("version", STYLES)
def test_the_time_of_kernels_is_the_sum_over_the_events_in_every_format(tmp_path, version):
    for suffix in (".json", ".json.gz"):
        path = write_trace(tmp_path / f"trace{suffix}", STYLES[version])
        assert kernels(path) == kernels_by_brute_force(trace_text(STYLES[version]))
    assert paths_of(path)[0][2] == ("step", "aten::op0(4×256, 256×8)")


def test_a_bare_array_and_one_line_are_read_too(tmp_path):
    content = json.loads(trace_text(RECENT))
    texts = [json.dumps(content["traceEvents"]), "\ufeff" + json.dumps(content, separators=(",", ":"))]
    for text in texts:
        (tmp_path / "trace.json").write_text(text)
        assert kernels(tmp_path / "trace.json") == kernels_by_brute_force(trace_text(RECENT))


def test_blocks_end_between_events_wherever_the_text_is_cut(tmp_path, monkeypatch):
    path = write_trace(tmp_path / "trace.json", RECENT)
    expected = kernels_by_brute_force(path.read_text())
    for size in (1, 7, 64, 301, 1000):
        monkeypatch.setattr(events, "BLOCK", size)
        assert kernels(path) == expected, size


def test_microseconds_become_the_nanoseconds_that_they_are(tmp_path):
    exact = {"0": 0, "1.5": 1500, "1712195495519689.049": 1712195495519689049, "1e3": 1_000_000}
    for text, expected_ns in exact.items():
        for others in ((), ("7",), ("7.125",), ("7.1", "7.125")):  # numbers of one kind are converted together
            path = tmp_path / "trace.json"
            each = [f'{{"ph":"X","cat":"kernel","ts":{one},"dur":1,"args":{{"device":0}}}}' for one in (*others, text)]
            path.write_text(f"[{','.join(each)}]")
            read = trace.Events(path)
            assert int(read[trace.KERNEL]["start"][-1]) + read.first_ns == expected_ns


# GPU


def test_a_trace_of_a_gpu_gives_activities_with_their_calls_sizes_and_memories(tmp_path):
    copy, pair = {"device": 0, "stream": 7, "bytes": 4096}, {"copy kind": "DtoH", "src kind": "device"}
    path = written(
        tmp_path,
        event("user_annotation", "forward", 5.5, 50),
        event("gpu_user_annotation", "forward", 20, 50, thread=7, pid=0),
        event("cuda_runtime", "cudaLaunchKernel", 7, 3, correlation=41, cbid=211),
        event("cuda_driver", "cuLaunchKernelEx_v2", 10, 3, thread=12, correlation=42),
        event("cuda_runtime", "cudaMemcpyAsync", 13, 1, correlation=43),
        event("gpu_memset", "Memset (Device)", 32, 1, thread=7, pid=0, correlation=44, **copy),
        event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 31, 1, thread=7, pid=0, correlation=43, **copy),
        event("gpu_memcpy", "Memcpy", 41, 1, **copy, **pair, **{"dst kind": "pinned"}),
        event("kernel", "fill", 20, 5, thread=7, pid=0, correlation=41, **KERNEL),
        event("kernel", "nvjet", 25, 6, thread=9, pid=1, correlation=42, device=1, stream=9),
        event("kernel", "__amd_rocclr_copyBuffer", 35, 1, **copy),
        deviceProperties=[{"id": 0, "name": "NVIDIA H200"}],
        baseTimeNanoseconds=1_790_857_026_000_000_000,
        distributedInfo={"rank": 3, "world_size": 8},
    )
    capture = trace.read(path)
    assert work_of(capture) == [
        ("fill", 14_500, 19_500, 0, 7, 1500, 11),
        ("nvjet", 19_500, 25_500, 1, 9, 4500, 12),
        ("__amd_rocclr_copyBuffer", 29_500, 30_500, 0, 7, None, None),
        ("[CUDA memcpy Host-to-Device]", 25_500, 26_500, 0, 7, 7500, 11),
        ("[CUDA memcpy Device-to-Host]", 35_500, 36_500, 0, 7, None, None),
        ("[CUDA memset]", 26_500, 27_500, 0, 7, None, None),
    ]
    assert capture.activities.kind.tolist() == [0, 0, 1, 1, 1, 2]
    assert [*capture.calls.names.values()] == ["cudaLaunchKernel", "cuLaunchKernelEx", "cudaMemcpyAsync"]
    assert set(capture.activities.process.tolist()) == {5 << 24}
    source = capture.source
    assert [*map(list, source.sizes().values())] == [["2x1x1", *[""] * 5], ["128x1x1", *[""] * 5]]
    copies = {name: column.tolist() for name, column in source.copies().items()}
    assert copies["source"][3:5] == [0, 2] and copies["target"][3:5] == [2, 1]
    assert copies["bytes"][3:] == [4096, 4096, 4096]
    assert source.gpus() == ["NVIDIA H200"]
    assert source.began_utc_ns() == 1_790_857_026_000_005_500
    assert [capture.ranges.names[number] for number in capture.ranges.name] == ["forward"]
    assert (capture.facts["RECORDED_RANK"], capture.facts["RECORDED_RANKS"]) == ("3", "8")


@pytest.mark.parametrize("correlation", [0, "0", None])
@pytest.mark.parametrize(
    ("named", "expected"),
    [
        (event("cpu_op", "aten::a", 3, 5), ("A", "Net")),
        (event("user_annotation", "inner", 3, 5), ("A", "Net", "inner")),
        (event("cuda_runtime", "hipExtLaunchKernel", 3, 5, correlation=900), ("A", "Net")),
    ],
)
def test_correlation_0_is_none_and_the_external_id_leads_to_the_operator(tmp_path, correlation, named, expected):
    named["args"]["External id"] = 3
    path = written(
        tmp_path,
        event("user_annotation", "A", 0, 50),
        event("python_function", "nn.Module: Net_0", 1, 40),
        named,
        event("user_annotation", "B", 60, 50),
        event("cuda_runtime", "cudaLaunchKernel", 62, 1, correlation=3, **{"External id": 4}),
        event("kernel", "of A", 10, 5, correlation=correlation, device=0, stream=7, **{"External id": 3}),
        event("kernel", "of B", 70, 5, correlation=3, device=0, stream=7),
    )
    assert paths_of(path) == [("of A", 5000, expected), ("of B", 5000, ("B",))]


@pytest.mark.parametrize(
    ("shift_us", "more_ids", "pid"),
    [(3, 0, 5), (1e7, 0, 5), (3, 0, "[TP01] 5"), (3, 1 << 20, 5), (3, 9999, 6)],
)
@pytest.mark.parametrize("on_gpu", [True, False])
def test_ranks_that_were_merged_into_one_file_are_refused(tmp_path, shift_us, more_ids, pid, on_gpu):
    events = json.loads(gzip.decompress((REPORTS / "kineto_memcpy.json.gz").read_bytes()))["traceEvents"]
    events = [one for one in events if on_gpu or one["cat"] not in ("kernel", "gpu_memcpy", "cuda_runtime")]
    second = json.loads(json.dumps(events))
    for one in second:
        one["ts"] = float(one["ts"]) + shift_us
        one["pid"] = one["pid"] if one["pid"] == 0 else pid
        one["args"] |= {
            key: one["args"][key] + more_ids for key in ("correlation", "External id") if key in one["args"]
        }
    with pytest.raises(TraceError, match=r"this file holds 2 ranks, .*: give their files"):
        trace.read(written(tmp_path, *events, *second))


@pytest.mark.parametrize(("category", "name"), [("user_annotation", "theirs"), ("cpu_op", "op"), ("cuda_runtime", "c")])
def test_a_single_event_of_another_process_is_no_rank(tmp_path, category, name):
    launch = event("cuda_runtime", "cudaLaunchKernel", 2, 1, correlation=4)
    kernel = event("kernel", "k", 3, 1, correlation=4, device=0, stream=7)
    path = written(tmp_path, event(category, name, 0, 9, pid=6), launch, kernel)
    assert paths_of(path) == [("k", 1000, ())]
    assert set(trace.read(path).activities.process.tolist()) == {5 << 24}


def test_a_trace_of_the_gpu_alone_is_read(tmp_path):
    kernel = event("kernel", "k", 3, 1, correlation=4, device=0, stream=7)
    stack = event("python_function", "nn.Module: Net_0", 0, 9)
    assert kernels(written(tmp_path, kernel)) == kernels(written(tmp_path, kernel, stack)) == (1, 1000)


def test_ranks_are_told_by_their_labels_and_by_steps_that_one_thread_has_twice(tmp_path):
    kernel = event("kernel", "k", 3, 1, correlation=4, device=0, stream=7)
    operator = event("cpu_op", "aten::add", 1, 9)
    steps = [event("user_annotation", f"ProfilerStep#{number}", 10 * number, 9) for number in (0, 1, 0, 1)]
    merged = ([kernel | {"pid": f"[TP0{rank}] 0"} for rank in range(2)], [kernel, operator, *steps])
    for ranks in merged:
        with pytest.raises(TraceError, match="this file holds 2 ranks"):
            trace.read(written(tmp_path, *ranks))
    assert len(trace.read(written(tmp_path, kernel, operator, *steps[:2])).activities) == 1


# CPU


def test_without_a_gpu_outermost_operators_launch_themselves_and_nodes_are_none(tmp_path):
    path = written(
        tmp_path,
        event("user_annotation", "step", 0, 60),
        event("cpu_op", "aten::linear", 0, 10),
        event("cpu_op", "aten::addmm", 4, 6),
        event("cpu_op", "autograd::engine::evaluate_function: MmBackward0", 10, 20),
        event("cpu_op", "aten::mm", 12, 3),
        event("cpu_op", "aten::relu", 5, 3, thread=12),
        event("cpu_op", "Torch-Compiled Region: 0/0", 30, 20),
        event("cpu_op", "graph_0_cpp_fused_mul_silu_3", 31, 5),
        event("cpu_op", "aten::view", 40, 1, **{"External id": 8}),  # inside the next, which has the same times
        event("cpu_op", "aten::reshape", 40, 1, **{"External id": 7}),
    )
    capture = trace.read(path)
    assert work_of(capture) == [
        ("aten::linear", 0, 10_000, -1, 11, 0, 11),
        ("aten::relu", 5_000, 8_000, -1, 12, 5_000, 12),
        ("aten::mm", 12_000, 15_000, -1, 11, 12_000, 11),
        ("graph_0_cpp_fused_mul_silu_3", 31_000, 36_000, -1, 11, 31_000, 11),
        ("aten::reshape", 40_000, 41_000, -1, 11, 40_000, 11),
    ]
    assert "holds nothing of a GPU" in capture.facts["TRACE_NOTES"]
    assert sorted(set(capture.ranges.names)) == ["backward", "step"]


def test_a_collective_of_gloo_is_work_of_the_call_that_started_it_and_no_range(tmp_path):
    path = written(
        tmp_path,
        event("user_annotation", "gloo:all_reduce", 1, 2, thread=21),  # begun before the first call that is recorded
        event("cpu_op", "aten::mm", 0, 9),
        event("user_annotation", "all-reduce, bytes = 8", 10, 4),
        event("cpu_op", "c10d::allreduce_", 11, 1),
        event("cpu_op", "c10d::_reduce_scatter_base_", 12, 1, thread=12),  # which Gloo does by reducing all
        event("cpu_op", "c10d::broadcast_", 13, 1),
        event("user_annotation", "gloo:all_reduce", 15, 30, thread=22),
        event("user_annotation", "gloo:broadcast", 16, 1, thread=21),
        event("user_annotation", "gloo:all_reduce", 14, 8, thread=21),
    )
    capture = trace.read(path)
    assert work_of(capture) == [
        ("aten::mm", 0, 9_000, -1, 11, 0, 11),
        ("gloo:all_reduce", 1_000, 3_000, -1, 21, None, None),
        ("gloo:all_reduce", 14_000, 22_000, -1, 21, 11_000, 11),
        ("gloo:all_reduce", 15_000, 45_000, -1, 22, 12_000, 12),
        ("gloo:broadcast", 16_000, 17_000, -1, 21, 13_000, 11),
    ]
    assert capture.ranges.names == ["all-reduce, bytes = 8"]


# The recorder's own traces


def test_the_recorders_ranges_are_annotations_alone_and_its_steps_are_not_divided(tmp_path):
    steps = [event("user_annotation", f"ProfilerStep#{number}", 10 * number, 10) for number in range(2)]
    own = event("user_annotation", "step", 0, 15)
    encoded = event("user_annotation", "%=n%C3%A9%22", 2, 3)
    operator = event("cpu_op", "aten::mul", 1, 2)
    for more, names in (([own, encoded], ["step", 'né"']), ([], ["ProfilerStep#0", "ProfilerStep#1"])):
        capture = trace.read_recorded(written(tmp_path, operator, *steps, *more), "2.13")
        assert [capture.ranges.names[number] for number in capture.ranges.name] == names
        assert capture.facts["EXPORT_PRODUCT_VERSION"] == "2.13"


def test_a_window_in_which_nothing_was_recorded_is_an_error(tmp_path):
    with pytest.raises(TraceError, match="nothing of PyTorch ran in the window"):
        trace.read_recorded(written(tmp_path), "2")
    for on_gpu, missing in ((True, "no kernel"), (False, "no ATen operator")):
        with pytest.raises(TraceError, match=f"recorded 1 events and {missing}"):
            trace.read_recorded(written(tmp_path, event("user_annotation", "a", 0, 1)), "2", on_gpu)


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name)
def test_the_time_of_kernels_is_the_sum_over_the_events_in_real_traces(path):
    if not trace.read(path).is_cpu_only:
        assert kernels(path) == kernels_by_brute_force(gzip.decompress(path.read_bytes()))


ASKED = {  # as PyTorch 2.11 told on two H200s
    "Collective name": "allreduce", "In msg nelems": 1 << 20, "Out msg nelems": 1 << 20, "dtype": "Float",
    "Process Group Name": "0", "Process Group Ranks": "[0, 1]", "External id": 2,
}  # fmt: skip


def collectives_of(folder: Path, *events: dict) -> list[tuple]:
    """What PyTorch asked of the kernels of NCCL, in order."""
    return [*trace.read(written(folder, *events)).source.torch_collectives().values()]


def asked_kernel(correlation: int | str, **told) -> dict:
    return event("kernel", "ncclDevKernel", 6, 9, correlation=correlation, **KERNEL, **(ASKED | told))


@pytest.mark.parametrize(
    ("told", "operation", "size"),
    [
        ({}, "all-reduce", 4 << 20),
        ({"Collective name": "_allgather_base", "Out msg nelems": 2 << 20}, "all-gather", 8 << 20),
        ({"Collective name": "ALLREDUCE_coalesced", "In msg nelems": str(1 << 20)}, "all-reduce", 4 << 20),
        ({"Collective name": "recv 1<-0", "dtype": "BFloat16"}, "send-recv", 2 << 20),
        ({"Collective name": "of a later version", "dtype": "Float2_e1m0"}, None, None),
    ],
)
@pytest.mark.parametrize("correlation", [13, "0"])  # 0 is none: then the external id leads to the operator
def test_of_a_kernel_of_nccl_is_kept_what_pytorch_asked_for(tmp_path, told, operation, size, correlation):
    call = event("cuda_runtime", "cudaLaunchKernelExC", 1, 1, correlation=13)
    operator = event("cpu_op", "c10d::allreduce_", 0, 5, **{"External id": 2})
    (found,) = collectives_of(tmp_path, operator, call, asked_kernel(correlation, **told))
    assert found[:2] == (operation, size)


def test_a_group_of_ranks_has_a_number_of_its_own_and_several_kernels_of_one_call_no_bytes(tmp_path):
    others = asked_kernel(3, **{"External id": 4, "Process Group Ranks": "[2, 3]"})
    start = event("cpu_op", "aten::fill_", 0, 1)
    first, second, third = collectives_of(tmp_path, start, asked_kernel(1), asked_kernel(2), others)
    assert [first[1], second[1], third[1]] == [None, None, 4 << 20]
    assert first[2] == second[2] != third[2]


# Refusals and damage


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (trace_text(RECENT).replace('"pid": 0', '"ph": "i"'), "the profiler saw nothing of the GPU"),
        (json.dumps({"traceEvents": []}), "without kernels and operators"),
        (json.dumps({"rules": [], "cores": 2}), "no JSON with traceEvents"),
        (json.dumps({"traceEvents": [], "writtenBy": "kernel-tables"}), "written by `kernel-tables trace`"),
        ('{"traceEvents": [', "invalid JSON: the file is cut off or damaged"),
        (trace_text(RECENT).partition("void kernel3")[0], "invalid JSON: the file is cut off or damaged"),
        ("[1, 2]", "without kernels and operators"),
    ],
)
def test_json_that_a_command_cannot_serve_is_refused_in_one_line_that_says_what_it_is(tmp_path, capsys, text, said):
    (tmp_path / "trace.json").write_text(text)
    assert main(["ranges", str(tmp_path / "trace.json")]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.startswith("kernel-tables: ") and err.count("\n") == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"void kernel3", b"void \xff"),
        (b"void kernel3", b"void \x01"),
        (b"5.25", b"-inf"),
        (b'"displayTimeUnit"', b'"x": NaN, "displayTimeUnit"'),
    ],
)
def test_what_writers_are_careless_about_is_repaired_and_said(tmp_path, old, new):
    (tmp_path / "trace.json").write_bytes(trace_text(RECENT).encode().replace(old, new))
    capture = trace.read(tmp_path / "trace.json")
    assert kernels(tmp_path / "trace.json") == kernels_by_brute_force(trace_text(RECENT))
    assert capture.source.began_utc_ns() is not None and capture.source.gpus() == ["A GPU"]
    if b"NaN" not in new:
        assert "invalid JSON was repaired (" in capture.facts["TRACE_NOTES"]


def test_a_gzipped_trace_that_is_cut_off_is_refused(tmp_path):
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(trace_text(RECENT).encode(), mtime=0)[:-9])
    with pytest.raises(TraceError, match="damaged or cut off") as caught:
        trace.read(path)
    assert [finding.code for finding in caught.value.findings] == ["invalid_json"]


def damaged_by_chance(text: bytes, chance: random.Random) -> bytes:
    """The text cut, or with bytes lost, doubled, exchanged or put in."""
    place, other = chance.randrange(len(text)), chance.randrange(len(text))
    put_in = [b'"', b"\\", b"\x00", b"{", b"}", b"[", b"]", b",", b":", b"\xff", b"null", b"1e999", b"NaN", b"9" * 30]
    gap = chance.choice([-300, chance.randrange(1, 400), len(text)])
    exchanged = text[:place] + text[other : other + 60] + text[place + 60 :]
    filled = text[:place] + chance.choice(put_in) + text[place:]
    return chance.choice([text[:place] + text[max(place + gap, 0) :], exchanged, filled])


def test_no_damage_ends_in_a_traceback_or_unsaid_in_a_figure_of_invalid_json(tmp_path):
    chance, path, outcomes = random.Random(0), tmp_path / "trace.json", Counter()
    texts = [trace_text(style).encode() for style in STYLES.values()]
    for _ in range(100):
        path.write_bytes(text := damaged_by_chance(chance.choice(texts), chance))
        try:
            found = kernels(path)
        except TraceError as error:
            assert "\n" not in str(error)
            outcomes["refused"] += 1
            continue
        try:
            assert found == kernels_by_brute_force(text.decode(errors="replace"))
            outcomes["read"] += 1
        except (ValueError, KeyError, AssertionError):  # no JSON, an event that is none, a kernel without a duration
            notes = trace.read(path).facts["TRACE_NOTES"]
            assert "repaired" in notes or "left out" in notes
            outcomes["repaired"] += 1
    assert min(outcomes.values()) > 2 and len(outcomes) == 3


def test_no_odd_value_of_an_event_ends_in_a_traceback(tmp_path):
    chance, odd = random.Random(0), [None, -1, "", [], [1], {}, {"a": 1}, 9e18, "9" * 30, "1.5", "x", True, 1 << 70]
    texts = [gzip.decompress((REPORTS / name).read_bytes()) for name in ("coll_int.json.gz", "kineto_memcpy.json.gz")]
    texts.append(trace_text(RECENT))
    refused = 0
    for _ in range(100):
        some = json.loads(chance.choice(texts))["traceEvents"]
        one = chance.choice([one for one in some if one.get("args")])
        one = chance.choice([one, one["args"]])
        one[chance.choice([*one, "ts"])] = chance.choice(odd)
        try:
            with kernel_tables.read(written(tmp_path, *some)) as profile:
                profile.kernels(), profile.check(), profile.capture.source.torch_collectives()
                profile.capture.source.copies()
        except TraceError:
            refused += 1
    assert refused < 50


@pytest.mark.parametrize(
    "bad",
    [
        5, None, {"ph": "X", "cat": "cpu_op", "name": 7, "ts": 1, "dur": 1},
        {"ph": "X", "cat": "kernel", "name": "k", "dur": 1}, event("kernel", "k", "soon", 1, **KERNEL),
        event("kernel", "k", 9e18, 1, **KERNEL), event("kernel", "k", 1, 1e300, **KERNEL),
        event("user_annotation", "step", 1, "long"), event("cpu_op", "aten::mm", 1, 1) | {"args": [3]},
        event("user_annotation", "step", 1, 1) | {"ph": "B"},
    ],
)  # fmt: skip
def test_one_bad_event_costs_that_event_and_is_counted(tmp_path, bad):
    good = event("kernel", "k", 1, 1, **KERNEL)
    with kernel_tables.read(written(tmp_path, good, bad, event("cpu_op", "aten::mm", 2, 9))) as profile:
        assert profile.kernels()["launches"].tolist() == [1]
        assert any(note.startswith("1 events are left out") for note in profile.notes)
        assert [one.severity for one in profile.check() if one.code == "bad_events"] == ["warning"]


@pytest.mark.parametrize("number", [0, 2, 5])
@pytest.mark.parametrize("damaged", ['"ts": 1..5', '"ts" 5', '"ts": 5, "args": {'])
def test_one_event_of_invalid_json_costs_that_event_wherever_it_is(tmp_path, monkeypatch, number, damaged):
    lines = [json.dumps(event("kernel", f"k{line}", line, 1, **KERNEL)) for line in range(6)]
    lines[number] = lines[number].replace('"ts":', f'{damaged}, "was":', 1)
    (tmp_path / "trace.json").write_text(f'{{"traceEvents": [{", ".join(lines)}\n], "deviceProperties": [{{}}, {{}}]}}')
    for size in (events.BLOCK, 150):
        monkeypatch.setattr(events, "BLOCK", size)
        assert kernels(tmp_path / "trace.json") == (5, 5000)
    assert int(trace.read(tmp_path / "trace.json").facts["TRACE_BAD_EVENTS"]) > 0


def test_numbers_may_be_in_quotes(tmp_path):
    def quoted(value):
        return {k: str(v) if isinstance(v, int | float) else v for k, v in value.items()}

    call, work = event("cuda_runtime", "cudaLaunchKernel", 2, 1, correlation=4), event("kernel", "k", 3, 1.5, **KERNEL)
    work["args"]["correlation"] = 4
    events = [event("user_annotation", "step", 1, 9), call, work]
    plain = kernel_tables.read(written(tmp_path, *events)).kernels()
    for one in events:
        one.update(quoted(one) | {"args": quoted(one["args"])})
    assert kernel_tables.read(written(tmp_path, *events)).kernels().equals(plain)
    assert plain["range"].tolist() == ["step"]


def test_an_annotation_without_a_duration_lasts_to_the_end(tmp_path):
    opened = {"ph": "X", "cat": "user_annotation", "name": "open", "ts": 1, "pid": 5, "tid": 11}
    ranges = trace.read(written(tmp_path, opened, event("cpu_op", "aten::mm", 2, 9))).ranges
    assert (ranges.unclosed, ranges.end.tolist()) == (1, [10_000])


def test_a_kernel_without_a_duration_refuses_and_one_without_device_and_stream_has_those_of_its_track(tmp_path):
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "ts": 3, "pid": 1, "tid": 7, "args": {"correlation": 4}}
    assert [one[3:5] for one in work_of(trace.read(written(tmp_path, kernel | {"dur": 1})))] == [(1, 7)]
    with pytest.raises(TraceError, match="a kernel has no duration"):
        trace.read(written(tmp_path, kernel))
