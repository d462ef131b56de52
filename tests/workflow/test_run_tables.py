"""The tables of a run, from captures of an H200 and from made-up ones."""

import gzip
import json
from pathlib import Path

import pandas as pd
import pytest

from kernel_tables.errors import NotConserved, TraceError
from kernel_tables.profile import read as read_capture
from tests.kernel_tables.synthetic import Synthetic
from tests.workflow import small_results
from workflow.scripts import run_tables

ROOT = Path(__file__).parents[2]
RUN = "small_ctx8_train_step"


@pytest.fixture
def a_run(tmp_path):
    """A function that writes a result and its capture, and returns the path of the result."""

    def write(capture="tiny_2025.3.1", spec=None, machine=None, **facts) -> Path:
        result = small_results.make_result(RUN, "capture", spec, machine, **facts)
        path = tmp_path / small_results.write(tmp_path, result)
        if isinstance(capture, Synthetic):
            capture.write(path.with_name("capture.sqlite"))
        elif capture:
            packed = (ROOT / f"tests/captures/{capture}.sqlite.gz").read_bytes()
            path.with_name("capture.sqlite").write_bytes(gzip.decompress(packed))
        return path

    return write


def read(path: Path, name: str) -> pd.DataFrame:
    return pd.read_parquet(path.with_name(f"{name}.parquet"))


def status_of(path: Path) -> dict:
    return json.loads(path.with_name("status.json").read_text())


def test_the_phases_of_a_real_capture_are_exact_to_the_nanosecond(a_run):
    path = a_run()
    run_tables.main(path)
    assert status_of(path) == {"status": "complete", "reason": None, "warnings": []}
    phases = read(path, "phases")
    assert phases.groupby("phase")[["kernels", "kernel_ns"]].sum().to_dict("index") == {
        "step": {"kernels": 2196, "kernel_ns": 5_932_568},
        "forward": {"kernels": 366, "kernel_ns": 1_223_246},
        "loss": {"kernels": 27, "kernel_ns": 218_813},
        "backward": {"kernels": 795, "kernel_ns": 2_903_967},
        "optimizer": {"kernels": 1008, "kernel_ns": 1_586_542},
    }
    steps = phases[phases["phase"] == "step"].set_index("step")
    parts = phases[phases["phase"] != "step"].groupby("step")
    assert (parts["kernel_ns"].sum() == steps["kernel_ns"]).all() and (parts["wall_ns"].sum() <= steps["wall_ns"]).all()
    assert (steps["gpu_busy_ns"] <= steps["gpu_span_ns"]).all() and steps.index.tolist() == [0, 1, 2]
    kernels = read(path, "kernels")
    assert kernels["total_ns"].sum() == 5_932_568 + phases.query("phase == 'step'")["memop_ns"].sum()
    assert kernels.groupby("step")["launches"].sum().nunique() == 1


def test_an_incomplete_capture_gives_no_tables_but_the_command_that_captures_again(a_run):
    path = a_run("tiny_2022.4.2")
    with pytest.raises(TraceError, match=rf"no kernel was recorded.*snakemake --forcerun .*{RUN}/capture.json"):
        run_tables.main(path)
    assert not path.with_name("status.json").exists()


def test_a_run_out_of_memory_has_empty_tables_and_says_why(a_run):
    path = a_run(capture=None, **small_results.OUT_OF_MEMORY)
    run_tables.main(path)
    assert status_of(path) == {"status": "out_of_memory", "reason": "memory ran out", "warnings": []}
    assert all(read(path, name).empty for name in run_tables.TABLES)


def test_a_program_without_a_gpu_under_nsys_keeps_wall_times_and_has_no_gpu_times(a_run):
    path = a_run("tiny_2022.4.2", machine={"device": "cpu"})
    run_tables.main(path)
    assert "nsys records no operators of a CPU program" in status_of(path)["warnings"][-1]
    phases = read(path, "phases")
    assert (phases["wall_ns"] > 0).all() and phases["gpu_busy_ns"].isna().all()


def test_overlapping_kernels_are_busy_once_and_those_between_steps_count_in_none(a_run):
    made = (
        Synthetic().range("measure", 0, 1000)
        .range("step", 10, 300).range("forward", 20, 200)
        .kernel("gemm", at=30, start=40, duration=20).kernel("gemm", at=31, start=50, duration=30)
        .range("step", 310, 600).range("forward", 320, 500)
        .kernel("gemm", at=330, start=340, duration=20).kernel("gemm", at=331, start=350, duration=30)
        .kernel("between", at=305, start=700, duration=5)
    )  # fmt: skip
    path = a_run(made, spec={"measured_steps": 2})
    run_tables.main(path)
    first = read(path, "phases").set_index(["step", "phase"]).loc[0, "forward"]
    assert first[["wall_ns", "gpu_span_ns", "gpu_busy_ns", "kernel_ns", "kernels"]].tolist() == [180, 40, 40, 50, 2]
    between = read(path, "kernels").query("kernel == 'between'")
    assert between[["step", "phase", "total_ns"]].to_numpy().tolist() == [[-1, "(outside)", 5]]
    ranges = read(path, "ranges")
    assert ranges[["step", "phase", "instances", "wall_ns", "gpu_time_ns"]].to_numpy().tolist() == [
        [0, "forward", 1, 180, 50], [1, "forward", 1, 180, 50]
    ]  # fmt: skip


def test_steps_of_several_ranks_are_means_by_rank(a_run):
    def rank(wait: int) -> Synthetic:
        made = Synthetic().range("measure", 0, 4_000_000)
        for begin in (0, 2_000_000):
            made.range("step", begin, begin + 1_900_000).range("backward", begin + 1, begin + 100_000)
            made.kernel("gemm", at=begin + 2, start=begin + 100_000, duration=300_000)
            made.kernel("ncclDevKernel_AllReduce_Sum_f32(x)", at=begin + 3, start=begin + 350_000, duration=wait)
        return made

    path = a_run(rank(200_000), spec={"measured_steps": 2, "gpus": 2, "parallel": "ddp"}, ranks=2)
    rank(500_000).write(path.with_name("capture_rank1.sqlite"))
    run_tables.main(path)
    table = read(path, "communication_steps").set_index("rank")
    assert table[["compute_ms", "communication_ms", "exposed_communication_ms", "overlap"]].to_numpy().tolist() == [
        [0.3, 0.2, 0.15, 0.25], [0.3, 0.5, 0.45, 0.1]
    ]  # fmt: skip
    assert table[["transfer_ms", "waiting_ms", "collectives"]].to_numpy().tolist() == [[0.2, 0.0, 1], [0.2, 0.3, 1]]
    Synthetic().range("measure", 0, 10).write(path.with_name("capture_rank1.sqlite"))
    with pytest.raises(TraceError, match="gives no tables: rank 1: "):
        run_tables.main(path)


def test_a_lost_launch_is_an_error_and_not_a_figure(a_run):
    with read_capture(a_run().with_name("capture.sqlite")) as trace:
        activities, ranges = run_tables.place_in_steps(trace)
    broken = activities.assign(name=activities["name"].astype(object).where(activities.index != 5, None))
    with pytest.raises(NotConserved, match=r"launches: 2\d+ in the table, 2\d+ in the capture"):
        run_tables.sum_kernels(broken)
    with pytest.raises(NotConserved, match="kernel_ns of all phases"):
        run_tables.sum_phases(activities.assign(phase=activities["phase"].where(activities.index != 5, "step")), ranges)


@pytest.mark.parametrize(
    ("precision", "kernel", "warns"),
    [("fp32", "s16816gemm_tensorop", True), ("fp32", "sgemm", False), ("bf16", "s16816gemm_tensorop", False)],
)
def test_kernels_that_contradict_the_precision_are_a_warning(precision, kernel, warns):
    kernels = pd.DataFrame({"kernel": [kernel], "class": ["gemm"], "total_ns": [5]})
    assert bool(run_tables.check_tensor_cores(kernels, precision)) == warns
