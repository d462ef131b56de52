"""(l): launches of a capture joined with a table of Nsight Compute, and what is said of them."""

import csv
from pathlib import Path

import pandas as pd
import pytest

from cs336_model.results import write_result
from kernel_tables.counters import GROUPS, METRICS, OPERATION_INDICATORS
from kernel_tables.errors import TraceError
from tests.kernel_tables.synthetic import Synthetic
from tests.workflow.small_results import make_key, make_result
from tests.workflow.small_tables import DEFAULTS
from workflow import text
from workflow.scripts import counter_tables, counters
from workflow.tables import make_table

FFMA, READ, TIME_NS = GROUPS["instructions"]["ffma"], GROUPS["bytes"]["dram_read"], GROUPS["time"]["ns"]
STALL = GROUPS["stalls"]["data from L2 or DRAM"]
SIZES = dict.fromkeys(GROUPS["limits"].values(), 16.0) | {GROUPS["multiprocessors"]["count"]: 132.0}
RUN = "nano_ctx8_train_step"
KEYS = DEFAULTS | {"run": RUN, "model": "nano", "context_length": 8, "mode": "train_step"}
COUNTED = {  # of one launch: an H200 computes 67 TFLOP/s and moves 4.8 TB/s, so 10 µs are 670 MFLOP or 48 MB at most
    ("sgemm", "(4, 1, 1)", "(128, 1, 1)"): {FFMA: 0.8 * 335e6, READ: 4000.0, TIME_NS: 10_000.0},
    ("add", "(2, 1, 1)", "(64, 1, 1)"): {READ: 0.75 * 4.8e6, TIME_NS: 1000.0, STALL: 3.0},
}


def write_folder(folder: Path, *further: tuple[str, int], **counters_changes) -> Path:
    """The files of a run: two steps with an sgemm of 10 µs, an add of 1 µs and further (kernel, ns)."""
    capture = Synthetic().range("measure", 0, 2_000_000)
    for start in (1000, 1_000_000):
        capture.range("step", start, start + 900_000).range("forward", start + 10, start + 800_000)
        capture.kernel("sgemm", at=start + 30, duration=10_000, grid=(4, 1, 1), block=(128, 1, 1))
        for number, (name, duration) in enumerate((("add", 1000), *further)):
            at = start + 210 + number
            capture.kernel(name, at=at, duration=duration, grid=(2, 1, 1), block=(64, 1, 1))
    capture.write(folder / "capture.sqlite")
    write_result(make_result(RUN, "capture", machine={"device_name": "NVIDIA H200"}), folder / "capture.json")
    counted = {"status": "complete", "key": make_key(RUN, "counters")} | counters_changes
    write_result(make_result(RUN, "counters", **counted), folder / "counters.json")
    columns = dict.fromkeys((*METRICS, *OPERATION_INDICATORS), ("",))
    with (folder / "ncu.csv").open("w", newline="") as file:
        if counted["status"] == "complete":  # else the file is empty
            writer = csv.writer(file, quoting=csv.QUOTE_ALL)
            writer.writerow(["ID", "Kernel Name", "Grid Size", "Block Size", *columns])
            writer.writerow([""] * 4 + [units[0] for units in columns.values()])
            for number, (launch, values) in enumerate(COUNTED.items()):
                writer.writerow([number, *launch, *((SIZES | values).get(metric, 0.0) for metric in columns)])
    return folder


@pytest.fixture
def tables(tmp_path) -> dict[str, pd.DataFrame]:
    """The merged tables of one run."""
    counter_tables.main(write_folder(tmp_path))
    table = pd.read_parquet(tmp_path / "counters.parquet").assign(**KEYS)
    phases = make_table("phases", [KEYS | {"step": step, "phase": "step"} for step in (0, 1)])
    facts = {"device": "cuda", "device_name": "NVIDIA H200", "counters_status": "complete"}
    made = {"counters": table, "phases": phases, "runs": make_table("runs", [KEYS | facts])}
    return made | {"counter_kernels": counters.rank_kernels(table, phases)}


def test_every_launch_has_its_time_from_the_capture_and_its_work_from_the_counters(tables):
    first, second = tables["counters"].to_dict("records")
    assert (first["kernel"], first["grid"], first["launches"], first["total_ns"]) == ("sgemm", "4x1x1", 2, 20_000)
    assert first["flops"] == pytest.approx(0.8 * 670e6) and first["compute_share"] == pytest.approx(0.8)
    assert first["flops_per_byte"] == pytest.approx(0.8 * 670e6 / 4000)
    assert (second["dram_bytes"], second["memory_share"]) == (pytest.approx(3.6e6), pytest.approx(0.75))
    assert (first["verdict"], second["verdict"]) == ("compute", "memory")
    assert second["stall"] == "data from L2 or DRAM"


def test_times_are_of_one_step_and_shares_of_all_kernels(tables):
    table = tables["counter_kernels"]
    assert table["gpu_time_ms"].tolist() == [0.01, 0.001] and table["invocations"].tolist() == [1, 1]
    assert table["share"].tolist() == pytest.approx([10 / 11, 1 / 11]) and table["is_typical"].all()
    assert table["possible_ms"].tolist() == pytest.approx([0.008, 0.00075])


def test_a_kernel_without_counters_is_an_error_from_one_percent_of_the_time_on(tmp_path):
    counter_tables.main(write_folder(tmp_path, ("mul", 100)))
    with pytest.raises(TraceError, match=r"1 of 3 kernels have no counters, 8\.3 % .* mul, grid 2x1x1"):
        counter_tables.main(write_folder(tmp_path, ("mul", 1000)))


def test_kernels_of_nccl_are_left_out_and_lose_nothing(tmp_path):
    counter_tables.main(write_folder(tmp_path, ("ncclDevKernel_AllReduce_Sum_f32(ncclArgs)", 50_000)))
    table = pd.read_parquet(tmp_path / "counters.parquet")
    assert table["not_counted"].tolist() == [counter_tables.LEFT_OUT, "", ""]


def test_the_document_says_what_limits_most_of_the_time_and_what_to_do(tables):
    document = text.environment(tables).get_template("l_counters.md.j2").render()
    assert "Computation limits 90.9 % of the kernel time of a training step, memory 9.1 %" in document
    assert "reaches 80.0 % of the peak FLOP/s" in document and "(67.0 TFLOP/s in fp32" in document
    assert "use tensor cores (TF32 or bf16; in a grid:" in document
    assert "whose peaks are 7.4 and 15 times as high" in document
