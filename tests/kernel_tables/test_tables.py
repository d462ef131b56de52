"""The tables of the commands, from captures in the tests and from real ones."""

import math
from pathlib import Path

import pytest

from kernel_tables.errors import TraceError
from kernel_tables.trace import Trace
from tests.kernel_tables import brute_force
from tests.kernel_tables.synthetic import Synthetic

CAPTURES = Path(__file__).parent.parent / "captures"
# From captures/README.md of the recordings: (kernels, ns) under `measure`, by brute force.
TRUTH_2025 = {
    "measure": (2196, 5932568),
    "forward": (366, 1223246),
    "loss": (27, 218813),
    "backward": (795, 2903967),
    "optimizer": (1008, 1586542),
    "scaled dot product attention": (66, 177341),
    "computing attention scores": (24, 56063),
    "computing softmax": (30, 75999),
    "final matmul": (12, 45279),
}


def open_trace(capture: Synthetic, folder: Path, **options) -> Trace:
    return Trace(capture.write(folder / "capture.sqlite", **options))


def test_the_published_truth_of_a_real_capture_is_met_to_the_nanosecond():
    with Trace(CAPTURES / "tiny_2025.3.1.sqlite.gz") as trace:
        table = trace.ranges("measure").set_index("range")
    found = {name: tuple(table.loc[name, ["kernels", "gpu_time_ns"]]) for name in TRUTH_2025}
    assert found == TRUTH_2025
    assert set(table.index) - set(TRUTH_2025) == {"step", "cub::DeviceRadixSort"}


@pytest.mark.parametrize("name", ["tiny_2025.3.1", "tiny_2024.2.3"])
@pytest.mark.parametrize("under", [None, "measure", "backward"])
def test_every_range_of_a_real_capture_has_its_brute_force_sum(name, under, tmp_path):
    import gzip

    path = tmp_path / "capture.sqlite"
    path.write_bytes(gzip.decompress((CAPTURES / f"{name}.sqlite.gz").read_bytes()))
    with Trace(path) as trace:
        table = trace.ranges(under)
    counted = table[table["kernels"] > 0]
    found = {row.range: (row.kernels, row.gpu_time_ns) for row in counted.itertuples()}
    assert found == brute_force.ranges_table(path, under)


def test_a_capture_without_kernels_has_its_ranges_and_empty_kernel_tables():
    with Trace(CAPTURES / "tiny_2022.4.2.sqlite.gz") as trace:
        table = trace.ranges("measure").set_index("range")
        assert table.loc["step", ["instances", "kernels", "gpu_time_ns"]].tolist() == [3, 0, 0]
        assert len(trace.kernels()) == len(trace.classes()) == len(trace.activities()) == 0
        assert trace.enclosing("step").tolist() == []


def test_ranges_are_inclusive_count_nested_namesakes_once_and_keep_memory_operations_apart(tmp_path):
    capture = Synthetic().range("step", 0, 100).range("block", 10, 90).range("block", 20, 80)
    capture.kernel("gemm", at=30, duration=5).kernel("gemm", at=15, duration=2).memcpy(at=40, duration=7)
    with open_trace(capture.memset(at=5, duration=1), tmp_path) as trace:
        assert trace.ranges().to_numpy().tolist() == [
            ["block", 2, 2, 7, 1, 7],
            ["step", 1, 2, 7, 2, 8],
        ]


def test_under_keeps_only_the_ranges_inside_an_instance_of_that_name(tmp_path):
    capture = Synthetic().range("warmup", 0, 50).range("step", 10, 40).range("measure", 60, 200)
    capture.range("step", 70, 100).range("step", 110, 140).kernel("k", at=20).kernel("k", at=80).kernel("k", at=150)
    with open_trace(capture, tmp_path) as trace:
        assert trace.ranges("measure")[["range", "instances", "kernels"]].to_numpy().tolist() == [
            ["measure", 1, 2],
            ["step", 2, 1],
        ]
        assert trace.kernels("measure")[["range", "launches"]].to_numpy().tolist() == [
            ["measure", 1],
            ["measure > step", 1],
        ]
        with pytest.raises(TraceError, match="no range is named 'mesure'; there are 'warmup', 'step', 'measure'"):
            trace.ranges("mesure")


def test_kernels_have_total_mean_min_max_and_sample_standard_deviation(tmp_path):
    capture = Synthetic().range("step", 0, 100)
    for duration in (2, 4, 9):
        capture.kernel("gemm", at=duration, duration=duration)
    with open_trace(capture.kernel("gemm", at=200, duration=3), tmp_path) as trace:
        rows = trace.kernels().to_numpy().tolist()
    assert rows[0] == ["step", "gemm", "gemm", 3, 15, 5.0, 2, 9, math.sqrt(13)]
    assert rows[1][:-1] == ["", "gemm", "gemm", 1, 3, 3.0, 3, 3]
    assert math.isnan(rows[1][-1])


def test_sums_stay_exact_beyond_what_a_float_holds(tmp_path):
    capture = Synthetic().range("a", 0, 10)
    capture.kernel("k", at=5, duration=2**53).kernel("k", at=6, duration=1)
    with open_trace(capture, tmp_path) as trace:
        assert trace.ranges()["gpu_time_ns"].tolist() == [2**53 + 1]
        assert trace.kernels()["total_ns"].tolist() == [2**53 + 1]


def test_a_graph_replayed_as_a_whole_is_one_activity_of_class_graph(tmp_path):
    capture = Synthetic().range("replay", 0, 20).graph(3, at=10, duration=50).graph(3, at=15, duration=70)
    with open_trace(capture, tmp_path) as trace:
        assert trace.kernels()[["range", "kernel", "class", "launches", "total_ns"]].to_numpy().tolist() == [
            ["replay", "[CUDA graph 3]", "graph", 2, 120]
        ]
        assert trace.ranges()[["kernels", "gpu_time_ns"]].to_numpy().tolist() == [[2, 120]]


def test_memory_operations_have_classes_of_their_own(tmp_path):
    capture = Synthetic().memcpy(at=1, copy_kind=1, duration=5).memcpy(at=2, copy_kind=8, duration=4)
    with open_trace(capture.memset(at=3, duration=1), tmp_path) as trace:
        assert trace.kernels()[["kernel", "class", "total_ns"]].to_numpy().tolist() == [
            ["[CUDA memcpy Host-to-Device]", "memcpy", 5],
            ["[CUDA memcpy Device-to-Device]", "memcpy", 4],
            ["[CUDA memset]", "memset", 1],
        ]


def test_classes_show_what_no_rule_knows_with_its_share_and_names(tmp_path):
    capture = Synthetic().kernel("nvjet_tst_64x64", at=1, duration=60)
    capture.kernel("my_secret_thing", at=2, duration=30).kernel("another_thing", at=3, duration=10)
    path = capture.write(tmp_path / "capture.sqlite")
    with Trace(path) as trace:
        assert trace.classes().to_numpy().tolist() == [
            ["gemm", 1, 1, 60, 0.6, "nvjet_tst_64x64", ""],
            ["unknown", 2, 2, 40, 0.4, "my_secret_thing", "my_secret_thing; another_thing"],
        ]
    with Trace(path, extra_rules=[{"class": "attention", "pattern": "secret"}]) as trace:
        assert trace.classes()["class"].tolist() == ["gemm", "attention", "unknown"]


def test_several_gpus_and_streams_count_together_and_stay_told_apart(tmp_path):
    capture = Synthetic().range("step", 0, 100)
    capture.kernel("gemm", at=1, device=0, stream=7).kernel("gemm", at=2, device=1, stream=7)
    capture.kernel("gemm", at=3, device=1, stream=20)
    with open_trace(capture, tmp_path) as trace:
        assert trace.ranges()[["kernels", "gpu_time_ns"]].to_numpy().tolist() == [[3, 30]]
        assert trace.activities()[["device", "stream"]].to_numpy().tolist() == [[0, 7], [1, 7], [1, 20]]


@pytest.mark.parametrize("keep_empty", [False, True])
def test_empty_and_lacking_tables_are_alike(keep_empty, tmp_path):
    with open_trace(Synthetic(), tmp_path, keep_empty=keep_empty) as trace:
        assert len(trace.ranges()) == len(trace.kernels()) == len(trace.classes()) == 0
        assert trace.paths == [(), ("(launched before the capture)",)]
        assert len(trace.range_instances()) == 0


@pytest.mark.parametrize(
    "lacking",
    [
        "NVTX_EVENTS.textId",
        "NVTX_EVENTS.domainId",
        "CUPTI_ACTIVITY_KIND_KERNEL.globalPid",
        "CUPTI_ACTIVITY_KIND_KERNEL.graphNodeId",
        "CUPTI_ACTIVITY_KIND_KERNEL.streamId",
        "META_DATA_EXPORT",
        "CUPTI_ACTIVITY_KIND_RUNTIME.nameId",
    ],
)
def test_columns_that_a_version_lacks_are_done_without(lacking, tmp_path):
    capture = Synthetic().range("step", 0, 100).kernel("gemm", at=10)
    with open_trace(capture, tmp_path, lacking=(lacking,)) as trace:
        assert trace.ranges().to_numpy().tolist() == [["step", 1, 1, 10, 0, 0]]
        assert [finding for finding in trace.check() if finding.severity == "error"] == []


def test_kernels_without_a_process_are_refused_where_two_processes_launched(tmp_path):
    capture = Synthetic().kernel("k", at=1, process=1).kernel("k", at=1, process=2)
    lacking = ("CUPTI_ACTIVITY_KIND_KERNEL.globalPid",)
    with open_trace(capture, tmp_path, lacking=lacking) as trace, pytest.raises(TraceError, match="2 processes"):
        trace.kernels()


@pytest.mark.parametrize("registered", [False, True])
def test_units_of_fsdp_have_one_name_in_all_layers(tmp_path, registered):
    capture = Synthetic()
    for number, unit in enumerate([" (layers.0.mlp)", " (layers.1.mlp)", " (layers.1)", " (2)", ""]):
        at = 100 * number
        capture.range(f"FSDP::pre_forward{unit}", at, at + 90, registered=registered).kernel("k", at=at + 10)
    with Trace(capture.range("layers.1", 500, 600).write(tmp_path / "capture.sqlite")) as trace:
        assert trace.ranges().set_index("range")["instances"].to_dict() == {
            "FSDP::pre_forward (layers.mlp)": 2, "FSDP::pre_forward (layers)": 1, "FSDP::pre_forward": 2, "layers.1": 1,
        }  # fmt: skip
