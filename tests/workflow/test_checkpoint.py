"""(j): what checkpoints save and cost, from times and peaks that a person can check."""

import pandas as pd
import pytest

from tests.workflow.small_tables import DEFAULTS
from workflow import text
from workflow.scripts import checkpoint
from workflow.tables import make_table, read_tables, write_table

# (model, checkpoint): status, milliseconds of the captured steps, of them computed again, GiB at the peak
RUNS = {
    ("nano", "0"): ("complete", (99.0, 100.0, 101.0), 0.0, 8.0),
    ("nano", "1"): ("complete", (124.0, 125.0, 126.0), 25.0, 4.0),
    ("nano", "8-2"): ("complete", (149.0, 150.0, 151.0), 50.0, 6.0),
    ("huge", "0"): ("out_of_memory", (), 0.0, 80.0),
    ("huge", "1"): ("complete", (990.0, 1000.0, 1010.0), 200.0, 60.0),
    ("huge", "4"): ("complete", (1190.0, 1200.0, 1210.0), 250.0, 70.0),
    ("alone", "1"): ("complete", (5.0, 5.0, 5.0), 1.0, 1.0),
}


def make_tables() -> dict[str, pd.DataFrame]:
    rows: dict[str, list] = {name: [] for name in ("runs", "timings", "phases", "kernels")}
    for (model, blocks), (status, times, again, peak) in RUNS.items():
        keys = DEFAULTS | {"run": f"{model}_{blocks}", "model": model, "checkpoint": blocks, "mode": "train_step"}
        facts = {"timing_status": status, "capture_status": status, "device": "cuda", "device_name": "a GPU"}
        rows["runs"].append(keys | facts | {"peak_allocated_bytes": int(peak * 2**30)})
        if times:
            rows["timings"].append(keys | {"phase": "step", "mean_ms": times[1] + 10, "processes": 1})
        for step, ms in enumerate(times):
            rows["phases"].append(keys | {"step": step, "phase": "step", "gpu_busy_ns": int(ms * 1e6)})
            parts = {"block": ms - again, "recomputation > block": again}
            rows["kernels"] += [keys | {"step": step, "phase": "backward", "range": path, "total_ns": int(part * 1e6)}
                                for path, part in parts.items()]  # fmt: skip
    return {name: make_table(name, of) for name, of in rows.items()}


@pytest.fixture(scope="module")
def tables(tmp_path_factory) -> dict[str, pd.DataFrame]:
    """What the document reads; the script has written the table and the figure."""
    folder = tmp_path_factory.mktemp("tables")
    for name, frame in make_tables().items():
        write_table(frame, folder / f"{name}.parquet")
    outputs = [f"{folder}/checkpoint.{end}" for end in ("parquet", "svg")]
    checkpoint.main(list(map(str, folder.glob("*.parquet"))), outputs)
    assert "8-2" in (folder / "checkpoint.svg").read_text()
    return read_tables(folder.glob("*.parquet"))


def test_a_run_is_compared_with_the_one_without_checkpoints_in_gpu_time_and_memory(tables):
    table = tables["checkpoint"].set_index("run")
    assert "alone_1" not in table.index
    assert table.loc["nano_1", ["base_run", "gpu_verdict", "peak_ratio"]].tolist() == ["nano_0", "slower", 0.5]
    assert table.loc["nano_1", "gpu_ratio"] == pytest.approx(1.25, rel=1e-4)
    assert table.loc[["nano_0", "nano_1"], "recomputed_share"].tolist() == pytest.approx([0, 0.2])
    assert table.loc["nano_1", "wall_verdict"] == "cannot be told"  # one process has no spread
    assert table.index[table["is_typical"]].tolist() == ["nano_1"]  # the lowest peak of the only one compared


def test_on_a_processor_the_peak_is_what_the_stage_memory_recorded():
    made = make_tables()
    made["runs"]["peak_allocated_bytes"] = None
    of = made["runs"].set_index("run", drop=False)
    made["memory_totals"] = make_table("memory_totals", [dict(of.loc["nano_1"]) | {"requested_peak_bytes": 70}])
    made["memory_activations"] = make_table("memory_activations", [dict(of.loc["nano_1"]) | {"bytes": 7}] * 2)
    table = checkpoint.compare_checkpoints(made).set_index("run")
    assert table.loc["nano_1", ["peak_bytes", "kept_bytes"]].tolist() == [70, 14]


def test_the_document_says_what_is_saved_what_fits_and_where_the_peak_is_lowest(tables):
    document = text.environment(tables).get_template("j_checkpoint.md.j2").render()
    lead = document.split("\n\n")[1]
    assert all(said in lead for said in ("of 1 block", "4.0 GiB instead of 8.0 GiB", "125.0 % of the GPU time"))
    assert "it fits with 1, 4 blocks, the fastest of which is 1 block: 1000 ms and 60.0 GiB" in document
    assert "of 1 block in all 2 configurations; the other sizes need 1.17 to 1.50 times" in document


def test_without_a_complete_run_the_document_says_so_and_names_the_runs(tables):
    failed = make_tables()
    failed["runs"]["timing_status"] = "out_of_memory"
    failed["phases"] = failed["phases"][:0]
    table = checkpoint.compare_checkpoints(failed)
    document = text.environment(tables | {"checkpoint": table}).get_template("j_checkpoint.md.j2").render()
    assert "Not answered" in document and "`nano_1`" in document
    assert "No two runs" in str(checkpoint.draw(table, "").to_dict())
