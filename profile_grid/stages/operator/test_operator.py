"""The stage operator: its runs, their estimates, compared with what an H200 took, and the doctor's trial."""

import json
from pathlib import Path

import pandas as pd
import pytest
import yaml

from profile_grid.planning import estimates as grid_estimates
from profile_grid.planning.doctor import DoctorLine, Trial, first_failure, report
from profile_grid.stages.operator import estimates
from profile_grid.stages.operator.stage import OPERATOR
from profile_grid.stages.operator.trial import small_specification
from profile_grid.study.runs import (
    checked_config,
    grid_plan,
    grid_runs,
    planned_rows,
    shown_run_name,
    specification_json,
)
from profile_grid.study.schema import ConfigError
from profile_grid.study.workloads import ATTENTION_ALONE
from tests.profile_grid.made_up_operator import GIB, MACHINE, cell, operator_result
from tests.profile_grid.test_doctor import GPU_HOST, LAPTOP, ON_CPU, ON_H200, said

ROOT = Path(__file__).parents[3]
NOWHERE = Path("no folder of runs")  # where no run has a result yet
PRODUCT = {"program": "attention", "head_dims": [16, 64], "context_lengths": [256, 1024]}
VARIANT = ("precision", "attention", "compile", "head_dim")
DIMENSIONS = {"precision": "fp32", "batch_size": 8, "compile": "off", "attention": "eager", "head_dim": 64}
EXAMPLE = ROOT / "docs/example-h200/attention-sweep/tables"
CELLS, COST = (pd.read_parquet(EXAMPLE / f"{name}.parquet") for name in ("operator_times", "cost"))
TRIAL = Trial(ON_H200, 3.8, [DoctorLine("smoke", "one pass")])


def config(*products: dict) -> dict:
    """The project's config.yaml, with a grid of these products."""
    values = yaml.safe_load((ROOT / "config.yaml").read_text())
    return values | {"grid": "g", "grids": {"g": list(products)}}


def planned(name: str = "one", lengths=(1024, 16384), **changes) -> dict:
    """The entry of a run in the plan; `changes` are values of dimensions that differ from DIMENSIONS."""
    dimensions = DIMENSIONS | changes
    program = {"run": name, "dimensions": dimensions, "context_lengths": list(lengths), "device": "auto"}
    settings = {"program": program | {"warmup_passes": 5, "measured_passes": 100}, "environment": []}
    return {"run": name, **dimensions, "specifications": {OPERATOR.name: settings}}


def pace(folder: Path = NOWHERE, start_s: float = 3.0, device: str | None = "NVIDIA H200") -> grid_estimates.Pace:
    return grid_estimates.expected_pace(folder, start_s, device, ["fp32", "bf16"], ATTENTION_ALONE)


def doctor_lines(plan: list[dict], host=GPU_HOST, trial=TRIAL, folder=NOWHERE) -> list[DoctorLine]:
    device = trial.machine and trial.machine["device_name"]
    remaining = grid_estimates.remaining_measurements(plan, folder)
    return report(host, trial, {"grid": "g", "runs": plan}, remaining, pace(folder, trial.seconds, device))


def test_a_run_is_every_value_but_the_context_length_which_its_process_goes_through():
    runs = grid_runs(checked_config(config(PRODUCT | {"attentions": ["eager", "flash"], "precisions": ["bf16"]})))
    assert list(runs) == [
        "attention_d16_bf16_bs8", "attention_d16_bf16_bs8_flash-attention", "attention_d64_bf16_bs8",
        "attention_d64_bf16_bs8_flash-attention",
    ]  # fmt: skip
    assert {run.process_values["context_lengths"] for run in runs.values()} == {(256, 1024)}


def test_a_function_of_the_user_is_a_value_in_runs_of_attention_alone_and_its_run_has_the_name_of_a_file():
    own = {"attentions": ["eager", "my.attention:flash"]}
    runs = grid_runs(checked_config(config(PRODUCT | own | {"head_dims": [16]})))
    assert list(runs) == ["attention_d16_bs8", "attention_d16_bs8_my.attention-flash-attention"]
    models = {"models": ["small"], "context_lengths": [512], "modes": ["forward"]}
    with pytest.raises(ConfigError, match=r"grids\.g\.0\.attentions\.1: 'my\.attention:flash' is not one of"):
        checked_config(config(models | own))


def test_a_run_that_two_products_list_has_the_lengths_of_both():
    runs = grid_runs(config(PRODUCT, PRODUCT | {"context_lengths": [512], "head_dims": [16]}))
    assert runs["attention_d16_bs8"].process_values == {"context_lengths": (256, 512, 1024)}
    assert runs["attention_d64_bs8"].process_values == {"context_lengths": (256, 1024)}


def test_the_process_is_given_its_dimensions_lengths_and_passes():
    values = config(PRODUCT | {"compiles": [True]})  # as YAML reads a bare on
    run = grid_runs(values)["attention_d16_bs8_compile-on"]
    program = json.loads(specification_json(values, run, OPERATOR))["program"]
    assert program["dimensions"] == {
        "head_dim": 16, "precision": "fp32", "batch_size": 8, "compile": "on", "attention": "eager",
    }  # fmt: skip
    assert (program["context_lengths"], program["measured_passes"]) == ([256, 1024], 100)


def test_what_does_not_apply_to_it_has_no_value_and_its_only_stage_is_its_own():
    values = config(PRODUCT)
    runs = grid_runs(values)
    for run, row in zip(runs.values(), planned_rows(values, runs), strict=True):
        assert (run["context_length"], run["mode"], run["gpus"]) == (None, None, 1)
        assert run.stages == (OPERATOR,)
        assert (row["operator_status"], row["timing_status"], row["steps_warmed"]) == (None, "not_asked", 0)
    assert shown_run_name(runs) is None


@pytest.mark.parametrize(
    ("product", "message"),
    [
        ({"attentions": ["fastest"]}, "grids.g.0.attentions.0: 'fastest' is not one of"),
        (
            {"attentions": ["flash.py:flash:1"]},
            "grids.g.0.attentions.0: 'flash.py:flash:1' is not allowed here; it must",
        ),
        ({"models": ["small"]}, "unknown key 'models'; known keys: program, head_dims"),
        ({"program": "softmax"}, "grids.g.0.program: 'softmax' is not one of ['attention']"),
        ({"compiles": ["on"], "attentions": ["flash"]}, "compile on with attention flash: a fused kernel"),
        ({"compiles": ["attention"]}, "compile attention: only attention runs here"),
    ],
)
def test_what_cannot_be_measured_is_said_while_planning_in_one_line(product, message):
    with pytest.raises(ConfigError) as error:
        grid_runs(checked_config(config(PRODUCT | product)))
    assert message in str(error.value) and "\n" not in str(error.value)


def test_a_grid_is_of_models_or_of_attention():
    models = {"models": ["small"], "context_lengths": [512], "modes": ["forward"]}
    with pytest.raises(ConfigError, match="program attention and models are in one grid; give each a separate grid"):
        grid_runs(config(PRODUCT, models))


def test_the_estimate_of_the_runs_that_were_measured_on_an_h200_is_what_they_took():
    measured = COST[COST["run"].isin(CELLS[CELLS["status"] == "complete"]["run"])].merge(
        CELLS[["run", "head_dim"]].drop_duplicates(), on="run"
    )
    total = 0.0
    for row in measured.to_dict("records"):
        lengths = [int(length) for length in CELLS[CELLS["run"] == row["run"]]["context_length"]]
        plan = [planned(row["run"], lengths, **{key: row[key] for key in VARIANT})]
        seconds = grid_estimates.seconds_needed(grid_estimates.remaining_measurements(plan, NOWHERE), pace(), 139 * GIB)
        assert seconds < 2 * row["total_s"], row["run"]
        total += seconds
    assert total == pytest.approx(measured["total_s"].sum(), rel=0.1)


def test_the_estimate_of_memory_is_what_the_longest_cells_held_on_an_h200_to_a_tenth():
    eager = CELLS[(CELLS["attention"] == "eager") & (CELLS["context_length"] == 16384)]
    assert len(eager) == 16
    for row in eager.to_dict("records"):
        needed = grid_estimates.needed_bytes_of_run(planned(**{key: row[key] for key in VARIANT}))
        assert needed == pytest.approx(row["peak_bytes"], rel=0.1), row["run"]


def test_the_doctor_says_what_does_not_fit_and_how_long_it_takes():
    lines = doctor_lines([planned("short"), planned("long", [65536])])
    assert [line.topic for line in lines] == ["GPU", "torch", "smoke", "memory", "time"]
    assert first_failure(lines) is None
    assert "long needs about" in said("memory", lines).text
    assert said("memory", lines).text.endswith("1 of 2 runs will end as out of memory: long")
    assert said("time", lines).text.startswith("grid g: 2 runs, 0 of 2 measurements finished; the others take about ")


def test_where_no_pace_is_known_the_time_is_a_least_one():
    lines = doctor_lines([planned()], LAPTOP, Trial(ON_CPU, 4.0, [DoctorLine("smoke", "one pass")]))
    assert "the others take at least 4 s" in said("time", lines).text


def test_runs_that_are_there_are_not_measured_again_and_tell_what_starting_takes(tmp_path):
    finished, other = planned("finished"), planned("other")
    settings = finished["specifications"][OPERATOR.name]
    (tmp_path / "finished").mkdir()
    result = operator_result(cell(2.0, 1024), specification=settings)
    (tmp_path / "finished/operator.json").write_text(json.dumps(result))
    remaining = grid_estimates.remaining_measurements([finished, other], tmp_path)
    assert [specification["program"]["run"] for _, specification in remaining] == ["other"]
    assert pace(tmp_path, 1.0, MACHINE["device_name"]).overhead_s[OPERATOR.name] == pytest.approx(2.0 - 0.5)
    assert "nothing is left to measure" in said("time", doctor_lines([finished], folder=tmp_path)).text


def test_lengths_that_do_not_fit_and_gpus_without_known_peaks_add_no_time():
    program = planned("one", [1024, 65536])["specifications"][OPERATOR.name]["program"]
    shorter = planned("one", [1024])["specifications"][OPERATOR.name]["program"]
    peaks = pace().peaks
    assert estimates.seconds(program, peaks, 139 * GIB) == estimates.seconds(shorter, peaks, None) > 0
    assert estimates.seconds(program, None, None) == 0


def test_the_trial_is_one_pass_of_a_little_operator_that_is_written_out():
    plan = {"runs": [planned(attention="flash", precision="bf16")]}
    program = small_specification(plan)["program"]
    assert (program["dimensions"]["attention"], program["dimensions"]["batch_size"]) == ("eager", 1)
    assert (program["context_lengths"], program["measured_passes"]) == ([16], 1)


def test_the_plan_has_every_run_once_with_its_lengths():
    plan = grid_plan(config(PRODUCT))["runs"]
    assert [(entry["run"], entry["context_lengths"]) for entry in plan] == [
        ("attention_d16_bs8", [256, 1024]), ("attention_d64_bs8", [256, 1024]),
    ]  # fmt: skip
