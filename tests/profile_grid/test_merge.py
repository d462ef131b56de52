"""Runs brought together, from small JSON records written as the two processes of a run leave them."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from profile_grid.documents.run_remarks import not_measured
from profile_grid.merging import merge
from profile_grid.merging.cost import cost_in_words, cost_table
from profile_grid.merging.merge import provenance
from profile_grid.merging.run_overview import runs_table
from profile_grid.results.load_runs import MeasuredRun, StaleRun, read_runs
from profile_grid.results.results import FORMAT, StageStatus
from profile_grid.stages.timing.tables import study_tables, timings_table
from profile_grid.study.stages import NOT_ASKED
from tests.default_values import DEFAULT_VALUES
from tests.profile_grid.made_up_results import ENVIRONMENT, LOADED

DIMENSIONS = {"model": "small", "context_length": 8, "mode": "train_step", "batch_size": 4, **DEFAULT_VALUES}
SPEC = {
    "run": "small_ctx8_train_step", "dimensions": DIMENSIONS, "warmup_steps": 1, "measured_steps": 3,
    "sizes": {"d_model": 16, "d_ff": 32, "num_layers": 1, "num_heads": 2}, "vocab_size": 50,
}  # fmt: skip
MACHINE = {
    "device": "cuda", "device_name": "NVIDIA H200", "gpu_uuid_sha256": "5f2a", "driver": "580.82", "cuda": "13.0",
    "torch": "2.11.0", "python": "3.12.3", "cpu_name": "Some CPU", "cores": 16, "threads": 16,
    "sm_clock_mhz": 1980, "throttle_reasons": [], "other_processes": 0,
}  # fmt: skip
PROGRAM = {
    "status": "complete", "spec": SPEC, "out_of_memory": None, "reason": None, "compilation": None,
    "accuracy": None,
    "step_seconds": [0.010, 0.012, 0.014],
    "phase_seconds": {"forward": [0.004, 0.004, 0.004], "loss": [], "backward": [0.005, 0.006, 0.007], "optimizer": []},
    "warmup_seconds": [0.05], "warmup_phase_seconds": {"forward": [0.02], "loss": [], "backward": [0.03]},
    "losses": [4.0, 3.5, 3.0, 2.5], "parameters": 1000, "flops": {"forward": 5000}, "machine": MACHINE,
    "memory": {"peak_allocated_bytes": 10, "peak_reserved_bytes": 20, "device_total_bytes": 30},
    "cost_seconds": {
        "import": 1.0, "context": 0.5, "initialise": 0.25, "warmup": 0.125, "measured": 2.0, "profiler": 0.0625,
        "total": 4.0,
    },
    "ran_unix_s": [1.0, 2.0], "loaded": LOADED, "loaded_distributions": {},
}  # fmt: skip
OUT_OF_MEMORY = {
    "during": "warmup step 0: backward",
    "requested_bytes": 20 * 2**30, "free_bytes": 5 * 2**30, "total_bytes": 30 * 2**30,
}  # fmt: skip
PLAN = [
    {
        "run": SPEC["run"], **DIMENSIONS,
        "specifications": {"timing": {"program": SPEC}, "capture": {"program": SPEC}},
    }
]  # fmt: skip
SOURCES = {"timing": "00", "capture": "00"}


@pytest.fixture
def records():
    """What one run leaves: a test changes what it is about."""
    began = {
        "started_utc": "2026-01-02T03:04:05Z", "notes": [], "format": FORMAT, "reason": None, "reason_code": None,
        "sources": "00", "facts": {}, "files": {}, "environment": ENVIRONMENT, "waited_s": 0.0, "neighbours": 0,
        "git": {"git_commit": None, "git_clean": None},
    }  # fmt: skip
    made = json.dumps(  # text, so that the two processes share nothing
        {
            "timing": began | {
                "status": "complete", "specification": {"program": SPEC}, "program": PROGRAM,
                "seconds": {"program": 4.2, "all": 4.5, "leased": 4.0},
            },
            "capture": began | {
                "status": "complete", "specification": {"program": SPEC}, "program": PROGRAM,
                "facts": {"backend": "nsys", "nsys": "2025.3.1"},
                "seconds": {"program": 7.0, "export": 0.5, "all": 8.0, "leased": 5.0},
            },
            "status": {"status": "complete", "reason": None, "warnings": []},
        }
    )  # fmt: skip
    return json.loads(made)


@pytest.fixture
def runs_of(tmp_path):
    """A function that writes the records of one run and reads them as the merge does."""

    def read(records):
        (tmp_path / SPEC["run"]).mkdir()
        for name, record in records.items():
            (tmp_path / SPEC["run"] / f"{name}.json").write_text(json.dumps(record))
        return read_runs(PLAN, tmp_path, SOURCES)

    return read


def ran_out_of_memory(record):
    record["status"] = "out_of_memory"
    record["program"] |= {"status": "out_of_memory", "out_of_memory": OUT_OF_MEMORY, "step_seconds": [], "losses": []}
    record["program"]["phase_seconds"] = {phase: [] for phase in record["program"]["phase_seconds"]}


def test_the_mean_and_the_deviation_of_a_sample_of_every_phase_that_ran_stand_in_milliseconds(records, runs_of):
    table = timings_table(runs_of(records)).set_index("phase")
    assert table.loc["step", "n"] == 3
    assert table.loc["step", "mean_ms"] == pytest.approx(12.0)
    assert table.loc["step", "std_ms"] == pytest.approx(2.0)  # n - 1: sqrt((4 + 0 + 4) / 2)
    assert table.loc["step", ["min_ms", "max_ms"]].tolist() == pytest.approx([10.0, 14.0])
    assert table.loc["forward", "std_ms"] == pytest.approx(0.0)
    assert "loss" not in table.index


def test_one_step_has_a_mean_and_no_deviation(records, runs_of):
    program = records["timing"]["program"]
    program |= {"step_seconds": [0.010], "phase_seconds": {}, "spec": SPEC | {"measured_steps": 1}}
    step = timings_table(runs_of(records)).set_index("phase").loc["step"]
    assert step["mean_ms"] == pytest.approx(10.0)
    assert np.isnan(step["std_ms"])


def test_every_single_time_is_kept(records, runs_of):
    table = study_tables(runs_of(records))["steps"]
    assert table.loc[table["phase"] == "step", "ms"].tolist() == pytest.approx([10.0, 12.0, 14.0])
    assert table.loc[table["phase"] == "backward", "step"].tolist() == [0, 1, 2]


def test_every_time_of_the_warm_up_is_kept_apart_from_the_measured_ones(records, runs_of):
    table = study_tables(runs_of(records))["warmup_steps"]
    found = list(table[["phase", "step", "ms"]].itertuples(index=False, name=None))
    assert found == [("step", 0, 50.0), ("forward", 0, 20.0), ("backward", 0, 30.0)]


def test_a_stage_that_no_run_was_asked_for_gives_empty_tables_and_says_so(records, runs_of, tmp_path):
    (run,) = runs_of(records)
    assert run.status("memory") == NOT_ASKED and not run.is_complete("memory")
    row = runs_table([run]).iloc[0]
    assert row["memory_status"] == NOT_ASKED and pd.isna(row["memory_started_utc"])
    tables = merge.merged_tables([MeasuredRun(run.entry, run.results, {"timing": run.statuses["timing"]})], tmp_path)
    assert tables["memory_phases"].empty and "category" in tables["memory_phases"].columns
    assert set(tables["cost"]["stage"]) == {"timing", "capture"}


@pytest.mark.parametrize("stage", ["timing", "capture"])
def test_a_run_with_other_settings_than_the_plan_is_an_error_that_names_the_file_and_the_command(
    records, runs_of, stage
):
    records[stage]["specification"] = {"program": SPEC | {"seed": 8}}
    with pytest.raises(StaleRun, match=rf"{SPEC['run']}/{stage}.json .*--forcerun .*{stage}.json"):
        runs_of(records)


@pytest.mark.parametrize(("stage", "all_s", "export_s"), [("timing", 4.5, 0.0), ("capture", 8.0, 0.5)])
def test_the_parts_of_the_cost_add_up_to_the_whole_and_overhead_is_all_but_the_steps(
    records, runs_of, stage, all_s, export_s
):
    row = cost_table(runs_of(records)).set_index("stage").loc[stage]
    parts = ["import_s", "context_s", "initialise_s", "warmup_s", "measured_s", "profiler_s", "export_s", "other_s"]
    assert row[parts].sum() == pytest.approx(all_s)
    assert row["total_s"] == all_s
    assert row["export_s"] == export_s
    assert row["overhead_s"] == pytest.approx(all_s - 0.125 - 2.0)


def test_a_run_out_of_memory_has_a_row_with_what_it_asked_for_and_no_figures(records, runs_of):
    ran_out_of_memory(records["timing"])
    ran_out_of_memory(records["capture"])
    records["status"]["status"] = "out_of_memory"
    runs = runs_of(records)
    row = runs_table(runs).iloc[0]
    assert (row["timing_status"], row["capture_status"]) == ("out_of_memory", "out_of_memory")
    assert row["oom_during"] == "warmup step 0: backward"
    assert (row["oom_requested_bytes"], row["oom_free_bytes"], row["oom_total_bytes"]) == (
        20 * 2**30,
        5 * 2**30,
        30 * 2**30,
    )
    assert row["reason"] == (
        "memory ran out during warmup step 0: backward: 20.0 GiB were requested, 5.0 GiB of 30.0 GiB were free"
    )
    assert row["steps_captured"] == 0
    timing = timings_table(runs)
    assert timing[["phase", "n", "status"]].values.tolist() == [["step", 0, "out_of_memory"]]
    assert timing["mean_ms"].isna().all()


def test_a_stopped_run_has_a_row_with_its_reason_and_no_figures(records, runs_of):
    reason = "stopped at the time limit of 600 s, during measure step 1: forward"
    for name in ("timing", "capture"):
        records[name] |= {"status": "stopped", "reason": reason}
        records[name]["program"] |= {"status": "stopped", "reason": reason, "step_seconds": [], "losses": []}
    records["status"] |= {"status": "stopped", "reason": reason}
    runs = runs_of(records)
    row = runs_table(runs).iloc[0]
    assert (row["timing_status"], row["capture_status"], row["reason"]) == ("stopped", "stopped", reason)
    assert timings_table(runs)["mean_ms"].isna().all()
    assert [line.partition(": ")[2] for line in not_measured(runs_table(runs))] == [
        f"timing and capture stopped: {reason}"
    ]


def test_of_a_run_that_lacks_stages_for_several_reasons_each_is_told_once_with_its_stages(records, runs_of):
    def lacking(**ended) -> tuple[str, list[str]]:
        statuses = {name: StageStatus(status, reason, []) for name, (status, reason) in ended.items()}
        table = runs_table([replace(run, statuses=run.statuses | statuses)])
        return table["reason"].iloc[0], [line.partition(": ")[2] for line in not_measured(table)]

    run, no_gpu = runs_of(records)[0], ("unsupported", "no GPU")
    assert lacking(counters=no_gpu) == ("no GPU", ["not supported here: no GPU"])
    assert lacking(energy=no_gpu, counters=no_gpu)[0] == "no GPU"
    reason, lines = lacking(capture=("incomplete", "nsys hung"), energy=no_gpu, counters=no_gpu)
    assert reason == "capture: nsys hung; energy and counters: no GPU"
    assert lacking(energy=("unsupported", "energy: no counter"), counters=no_gpu)[0] == (
        "energy: no counter; counters: no GPU"
    )
    assert lines == [f"capture incomplete, energy and counters unsupported: {reason}"]


def test_a_run_out_of_memory_says_too_why_it_lacks_other_stages(records, runs_of):
    ran_out_of_memory(records["timing"])
    ran_out_of_memory(records["capture"])
    records["status"]["status"] = "out_of_memory"
    run = runs_of(records)[0]
    refused = {"counters": StageStatus("unsupported", "no ncu", [])}
    reason = runs_table([replace(run, statuses=run.statuses | refused)])["reason"].iloc[0]
    assert reason.startswith("timing and capture: memory ran out during warmup step 0: backward: 20.0 GiB")
    assert reason.endswith("; counters: no ncu")


def test_a_run_whose_capture_alone_ran_out_of_memory_keeps_its_times(records, runs_of):
    ran_out_of_memory(records["capture"])
    records["status"]["status"] = "out_of_memory"
    runs = runs_of(records)
    assert runs_table(runs).iloc[0]["oom_requested_bytes"] == 20 * 2**30
    assert timings_table(runs).set_index("phase").loc["step", "mean_ms"] == pytest.approx(12.0)


def test_a_capture_without_a_program_is_a_row_with_its_reason_and_its_cost(records, runs_of):
    records["capture"] |= {"status": "incomplete", "reason": "nsys hung", "program": None}
    records["status"] |= {"status": "incomplete", "reason": "nsys hung"}
    runs = runs_of(records)
    row = runs_table(runs).iloc[0]
    assert (row["capture_status"], row["reason"], row["steps_captured"]) == ("incomplete", "nsys hung", 0)
    cost = cost_table(runs).set_index("stage").loc["capture"]
    assert cost["total_s"] == 8.0
    assert np.isnan(cost["import_s"])


def test_losses_that_differ_between_timing_and_capture_are_noted_with_both(records, runs_of):
    records["capture"]["program"] = PROGRAM | {"losses": [4.0, 3.5, 9.0]}
    note = runs_table(runs_of(records)).iloc[0]["note"]
    assert note == "the training losses of timing and capture differ by up to 200.0 %"


def test_losses_of_a_model_with_fewer_layers_are_compared_with_none(records, runs_of):
    few = SPEC | {"sizes": SPEC["sizes"] | {"num_layers": 2}}
    records["capture"]["program"] = PROGRAM | {"losses": [4.0, 3.5, 9.0], "spec": few}
    assert runs_table(runs_of(records)).iloc[0]["note"] is None


def test_losses_that_agree_in_all_but_the_last_digits_are_not_noted(records, runs_of):
    records["capture"]["program"] = PROGRAM | {"losses": [4.0, 3.5001, 3.0]}
    assert runs_table(runs_of(records)).iloc[0]["note"] is None


def test_a_gpu_in_use_or_slowed_down_is_noted(records, runs_of):
    records["timing"]["program"]["machine"] |= {"other_processes": 2, "throttle_reasons": ["software power cap"]}
    note = runs_table(runs_of(records)).iloc[0]["note"]
    assert "2 other processes" in note
    assert "software power cap" in note


@pytest.mark.parametrize("name", ["device_name", "driver", "cuda", "torch"])
def test_a_run_timed_and_captured_on_two_machines_is_incomplete_and_says_how_to_mend_it(records, runs_of, name):
    records["capture"]["program"]["machine"][name] = "another"
    row = runs_table(runs_of(records)).iloc[0]
    assert row["capture_status"] == "incomplete"
    assert row["reason"].startswith(f"timing ran with {name} {MACHINE[name]}, capture with another")
    assert "--forcerun" in row["reason"]


def test_the_cost_of_all_measurements_is_said_in_one_line():
    rows = [("timing", 10, 2, 9), ("capture", 20, 7, 14), ("timing", 12, 3, 11), ("capture", 22, 8, 16)]
    cost = pd.DataFrame(rows, columns=["stage", "total_s", "overhead_s", "leased_s"])
    assert cost_in_words(cost, gpus=1) == (
        "4 measurements took 64 s, 20 s of them outside warm-up and measured steps"
        " (2.5 s per timing, 7.5 s per capture); 14 s of them leased no GPU: --cores all runs these in parallel;"
        " every run is in cost.csv"
    )


def test_the_cost_says_what_all_gpus_of_the_host_make_of_it():
    rows = [("timing", 1, 10, 2, 8), ("timing", 2, 12, 2, 8)]  # the second held two GPUs for 8 s
    cost = pd.DataFrame(rows, columns=["stage", "gpus", "total_s", "overhead_s", "leased_s"])
    assert "and measures on all 4 GPUs at once: 6 s if no GPU waits" in cost_in_words(cost, gpus=4)
    assert "at once" not in cost_in_words(cost, gpus=1)


def test_nothing_is_said_of_cores_where_every_measurement_needs_the_processor_to_itself():
    cost = pd.DataFrame([("timing", 10, 2, 10)], columns=["stage", "total_s", "overhead_s", "leased_s"])
    cost = pd.concat([cost, cost.assign(stage="capture")])
    assert "--cores" not in cost_in_words(cost, gpus=1)


def test_the_commit_of_the_measurements_is_told_with_its_changes(records, runs_of):
    clean, changed = {"git_commit": "abc", "git_clean": True}, {"git_commit": "abc", "git_clean": False}
    records["timing"]["git"], records["capture"]["git"] = clean, changed
    runs = runs_of(records)
    told = provenance(runs_table(runs), {}, merge.checkouts(runs))
    assert told["measured_git_commit"] == ["abc", "abc with changes"]


@pytest.mark.parametrize(
    ("stage", "change", "reason"),
    [
        ("timing", {"sources": "99"}, "timing.json is stale: the program, or what measures it, has changed"),
        ("capture", {"sources": "99"}, "capture.json is stale: the program, or what measures it, has changed"),
    ],
)
def test_a_file_that_is_not_what_would_be_made_now_stops_the_merge_by_its_name(records, runs_of, stage, change, reason):
    records[stage] |= change
    with pytest.raises(StaleRun, match=rf"{reason}.*--forcerun .*{stage}.json"):
        runs_of(records)


def test_a_capture_that_is_not_there_stops_the_merge_by_its_name(records, runs_of):
    records["capture"]["files"] = {"capture.sqlite": {"sha256": "00", "bytes": 10}}
    with pytest.raises(StaleRun, match=r"capture.json is stale: capture.sqlite is missing"):
        runs_of(records)


def test_timings_of_two_processes_have_their_geometric_mean_and_the_spread_between_them(records, tmp_path):
    folders = (tmp_path / "runs" / SPEC["run"], tmp_path / "processes" / "2" / SPEC["run"])
    for folder in folders:
        folder.mkdir(parents=True)
    for name, record in records.items():
        (folders[0] / f"{name}.json").write_text(json.dumps(record))
    again = json.loads(json.dumps(records["timing"]))
    again["program"]["step_seconds"] = [2 * seconds for seconds in again["program"]["step_seconds"]]
    (folders[1] / "timing.json").write_text(json.dumps(again))
    with pytest.raises(StaleRun, match="accuracy"):
        read_runs(PLAN, tmp_path / "runs", SOURCES, 2)
    again["specification"]["accuracy"] = False
    (folders[1] / "timing.json").write_text(json.dumps(again))
    step = timings_table(read_runs(PLAN, tmp_path / "runs", SOURCES, 2)).set_index("phase").loc["step"]
    assert (step["n"], step["processes"], step["min_ms"], step["max_ms"]) == pytest.approx((6, 2, 10.0, 28.0))
    assert step["mean_ms"] == pytest.approx((12.0 * 24.0) ** 0.5)
    assert step["process_spread"] == pytest.approx(np.log(2) / 2**0.5)
