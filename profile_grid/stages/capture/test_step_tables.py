"""Tables of a run, from real captures of an H200 (tests/captures)."""

import gzip
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_tables.errors import NotConserved, TraceError
from kernel_tables.trace import Trace
from profile_grid.results.capture_identity import write_specification
from profile_grid.results.results import FileIdentity, StageResult
from profile_grid.stages.capture.step_tables import kernel_table, measured_activities, tables_of_file
from profile_grid.stages.capture.tables import run_tables
from profile_grid.typed_json import parse_as
from tests.profile_grid.made_up_results import CAPTURE, changed

CAPTURES = Path(__file__).parents[3] / "tests" / "captures"
STEPS = 3


def capture_result(device="cuda", backend="nsys", steps=STEPS, status="complete"):
    record = changed(
        CAPTURE,
        status=status,
        program__spec={"measured_steps": steps, "dimensions": {"precision": "fp32"}},
        program__machine__device=device,
    )
    record["facts"]["backend"] = backend
    return parse_as(StageResult, record)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """The path of a capture of three training steps of a tiny model."""
    path = tmp_path_factory.mktemp("capture") / "capture.sqlite"
    with gzip.open(CAPTURES / "tiny_2025.3.1.sqlite.gz") as packed, path.open("wb") as unpacked:
        shutil.copyfileobj(packed, unpacked)
    return path


def test_the_phases_of_a_real_capture_are_exact_to_the_nanosecond(tiny):
    status, tables = tables_of_file(capture_result(), tiny)
    assert status["status"] == "complete"
    assert tables["phases"].groupby("phase")[["kernels", "kernel_ns"]].sum().to_dict("index") == {
        "step": {"kernels": 2196, "kernel_ns": 5_932_568},
        "forward": {"kernels": 366, "kernel_ns": 1_223_246},
        "loss": {"kernels": 27, "kernel_ns": 218_813},
        "backward": {"kernels": 795, "kernel_ns": 2_903_967},
        "optimizer": {"kernels": 1008, "kernel_ns": 1_586_542},
    }


def test_the_parts_of_attention_are_exact_to_the_nanosecond(tiny):
    _, tables = tables_of_file(capture_result(), tiny)
    ranges = tables["ranges"].groupby("range")[["instances", "kernels", "gpu_time_ns"]].sum()
    assert ranges.loc["scaled dot product attention"].tolist() == [6, 66, 177_341]
    assert ranges.loc["scaled dot product attention > computing softmax"].tolist() == [6, 30, 75_999]
    assert ranges.loc["scaled dot product attention > final matmul"].tolist() == [6, 12, 45_279]


def test_kernels_of_the_same_name_in_two_steps_are_two_rows(tiny):
    _, tables = tables_of_file(capture_result(), tiny)
    per_step = tables["kernels"].groupby("step")["launches"].sum()
    assert per_step.index.tolist() == [0, 1, 2]
    assert per_step.nunique() == 1


def test_a_capture_of_fewer_steps_than_configured_is_incomplete_and_has_no_figures(tiny):
    status, tables = tables_of_file(capture_result(steps=STEPS + 1), tiny)
    assert status["status"] == "incomplete"
    assert "found 3 ranges 'step', expected 4" in status["reason"]
    assert tables == {}


def test_a_capture_without_kernels_of_a_gpu_program_is_incomplete(tmp_path):
    path = tmp_path / "capture.sqlite"
    with gzip.open(CAPTURES / "tiny_2022.4.2.sqlite.gz") as packed, path.open("wb") as unpacked:
        shutil.copyfileobj(packed, unpacked)
    status, tables = tables_of_file(capture_result(), path)
    assert status["status"] == "incomplete"
    assert "no kernel was recorded" in status["reason"]
    assert tables == {}


def test_a_cpu_program_under_nsys_keeps_its_wall_times_and_has_no_gpu_figures(tmp_path):
    path = tmp_path / "capture.sqlite"
    with gzip.open(CAPTURES / "tiny_2022.4.2.sqlite.gz") as packed, path.open("wb") as unpacked:
        shutil.copyfileobj(packed, unpacked)
    status, tables = tables_of_file(capture_result(device="cpu"), path)
    assert status["status"] == "complete"
    assert "no operators of a CPU program" in status["warnings"][-1]
    assert (tables["phases"]["wall_ns"] > 0).all()
    assert tables["phases"]["gpu_busy_ns"].isna().all()


@pytest.mark.parametrize("status", ["out_of_memory", "incomplete"])
def test_a_run_that_was_not_captured_has_no_tables_and_its_status(tmp_path, status):
    status_of_tables, tables = tables_of_file(capture_result(status=status), tmp_path / "never read")
    assert status_of_tables["status"] == status
    assert tables == {}


def test_a_capture_that_is_not_the_one_of_its_result_is_incomplete_and_says_why(tmp_path, tiny):
    shutil.copy(tiny, tmp_path / "capture.sqlite")
    write_specification(tmp_path / "capture.sqlite", {})
    size = (tmp_path / "capture.sqlite").stat().st_size
    capture = replace(capture_result(), specification={}, files={"capture.sqlite": FileIdentity(size, "00")})
    status, tables = run_tables(capture, tmp_path)
    assert status["status"] == "incomplete"
    assert status["reason"].endswith("the digest of capture.sqlite is not the one in the result")
    assert tables == {}


def test_a_class_rule_that_cannot_be_used_is_an_error_and_no_fault_of_the_capture(tiny):
    with pytest.raises(TraceError, match="kernel_classes"):
        tables_of_file(capture_result(), tiny, [{"class": "mine", "pattern": "("}])


def test_own_class_rules_come_first(tiny):
    _, tables = tables_of_file(capture_result(), tiny, [{"class": "mine", "pattern": "elementwise"}])
    assert "mine" in set(tables["kernels"]["class"])
    assert "elementwise" not in set(tables["kernels"]["class"])


def test_own_rules_of_the_diagnosis_stand_among_its_findings(tiny):
    rule = {"code": "any_kernel", "kernel": "elementwise", "share": 0.0, "advice": "look at it"}
    _, tables = tables_of_file(capture_result(), tiny, (), [rule])
    findings = tables["findings"].set_index("code")
    assert (findings.loc["any_kernel", "advice"], findings.loc["any_kernel", "abstained"]) == ("look at it", False)
    assert set(tables_of_file(capture_result(), tiny)[1]["findings"]["code"]) == {*findings.index} - {"any_kernel"}


def test_kernels_of_the_window_outside_every_step_are_kept_and_named(tmp_path, tiny):
    path = tmp_path / "capture.sqlite"
    shutil.copy(tiny, path)
    with sqlite3.connect(path) as database:  # without the forward ranges, their kernels are directly in the step
        names = [row[0] for row in database.execute("SELECT DISTINCT text FROM NVTX_EVENTS")]
        assert "forward" in names
        database.execute("DELETE FROM NVTX_EVENTS WHERE text = 'forward'")
    database.close()
    _, tables = tables_of_file(capture_result(), path)
    assert tables["phases"].query("phase == '(outside)'")["kernels"].sum() > 0
    assert tables["phases"].query("phase == 'step'")["kernel_ns"].sum() == 5_932_568


def test_a_lost_launch_is_an_error_and_not_a_figure(tiny):
    with Trace(tiny) as trace:
        activities = measured_activities(trace)
    broken = activities.assign(name=activities["name"].astype(object).where(activities.index != 5, None))
    with pytest.raises(NotConserved, match=r"launches: 2\d+ in the table"):
        kernel_table(broken)


def test_the_step_row_covers_all_phases_of_each_step(tiny):
    _, tables = tables_of_file(capture_result(), tiny)
    phases = tables["phases"]
    for _, rows in phases.groupby("step"):
        step = rows[rows["phase"] == "step"].iloc[0]
        phases_of_step = rows[rows["phase"] != "step"]
        assert phases_of_step["kernel_ns"].sum() == step["kernel_ns"]
        assert step["gpu_busy_ns"] <= step["gpu_span_ns"]
        assert phases_of_step["wall_ns"].sum() <= step["wall_ns"]
