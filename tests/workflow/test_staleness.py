"""Results tell what made them: what is planned where Snakemake remembers nothing, as after a copy to a laptop."""

import json
import os
import shutil
from types import SimpleNamespace

import pytest
from snakemake.exceptions import WorkflowError

from tests.workflow.conftest import ROOT
from tests.workflow.test_invalidation import (
    CHANGED_CONFIG,
    ONE,
    TABLES,
    TWO,
    captures,
    config,
    counters,
    edited,
    timings,
)
from workflow.reruns import Reruns

OF_RUNS = ("timing", "capture", "counters", "tables_of", "plan")


@pytest.fixture
def copied(project):
    """The finished project without what Snakemake noted of it."""
    shutil.rmtree(project / ".snakemake")
    return project


def measured(snakemake, project, *arguments):
    """The measurements, tables of runs and plans that are planned."""
    planned = snakemake(project, "--dry-run", *arguments)
    assert planned.status == 0, planned.output
    return sorted(job for job in planned.jobs if job.startswith(OF_RUNS)), planned


def test_where_nothing_changed_nothing_is_made_again(copied, snakemake):
    assert measured(snakemake, copied)[0] == []


@pytest.mark.parametrize(
    "name",
    [
        "one model's size",
        "measured steps of the timings",
        "measured steps of the captures",
        "a class of kernels",
        "a model removed",
        "counters of every run",
    ],
)
def test_a_change_of_the_configuration_plans_the_same_measurements_as_where_snakemake_remembers(
    copied, snakemake, name
):
    change, expected = CHANGED_CONFIG[name]
    change(copied)
    expected = sorted(job for job in expected if job.startswith(OF_RUNS))
    assert measured(snakemake, copied)[0] == expected


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("cs336_model/model/transformer.py", [*timings(ONE, TWO), *captures(ONE, TWO), *counters(ONE)]),
        ("kernel_recorder/nsys_profile.py", captures(ONE, TWO)),
        ("kernel_tables/trace.py", TABLES),
    ],
)
def test_a_change_of_the_sources_does_too(copied, snakemake, file, expected):
    edited(file)(copied)
    assert measured(snakemake, copied)[0] == sorted(job for job in expected if job.startswith(OF_RUNS))


def test_the_reason_is_told_with_both_values(copied, snakemake):
    config("seed: 0", "seed: 1")(copied)
    _, planned = measured(snakemake, copied)
    assert "runs again, and maybe others: the settings have changed: program.seed was 0 and is 1" in planned.output


def test_what_is_planned_again_is_measured_and_then_fresh(copied, snakemake):
    target = f"results/runs/{ONE}/timing.json"
    config("alpha: {d_model: 16, d_ff: 32", "alpha: {d_model: 16, d_ff: 48")(copied)
    assert snakemake(copied, "--cores", "2", target).jobs == [f"timing {ONE}"]
    shutil.rmtree(copied / ".snakemake")
    assert measured(snakemake, copied, target)[0] == []


@pytest.mark.parametrize("damage", ["", "{", "[]", "null"])
@pytest.mark.parametrize(
    ("file", "reason"),
    [
        ("timing.json", "a result cannot be used: "),
        ("capture.json", "a result cannot be used: "),
        ("status.json", "a file is not the one that was made: "),
    ],
)
def test_a_damaged_result_is_made_again(copied, snakemake, file, reason, damage):
    (copied / f"results/runs/{ONE}/{file}").write_text(damage)
    rule = {"status": "tables_of_capture"}.get(file.removesuffix(".json"), file.removesuffix(".json"))
    jobs, planned = measured(snakemake, copied)
    assert f"{rule} {ONE}" in jobs
    assert reason in planned.output
    assert not [job for job in jobs if TWO in job]


def test_results_of_another_run_are_not_taken_for_its_own(copied, snakemake):
    for name in ("timing.json", "capture.json", "capture.sqlite"):
        shutil.copy2(copied / f"results/runs/{TWO}/{name}", copied / f"results/runs/{ONE}/{name}")
    assert {f"timing {ONE}", f"capture {ONE}"} <= set(measured(snakemake, copied)[0])


DYNAMIC = """
import importlib
from cs336_model.model import TransformerLM

def Model(**sizes):
    importlib.import_module("lay" + "ers")
    importlib.import_module("their" + "s.parts")
    return TransformerLM(**sizes)
"""


@pytest.fixture
def own_model(copied, snakemake, tmp_path):
    """A project whose model imports a file by a name made up at run time, and a package that is on PYTHONPATH."""
    (copied / "own_model.py").write_text(DYNAMIC)
    (copied / "layers.py").write_text("")
    (tmp_path / "elsewhere/theirs").mkdir(parents=True)
    (tmp_path / "elsewhere/theirs/parts.py").write_text("")
    config("constructor: cs336_model.model:TransformerLM", "constructor: own_model:Model")(copied)
    target = f"results/runs/{ONE}/timing.json"
    run = snakemake(copied, "--cores", "2", target, PYTHONPATH=str(tmp_path / "elsewhere"))
    assert run.status == 0, run.output
    return copied, target, tmp_path / "elsewhere"


def test_a_file_that_the_model_imports_by_a_name_made_up_at_run_time_makes_it_stale(own_model, snakemake):
    project, target, _ = own_model
    assert measured(snakemake, project, target)[0] == []
    (project / "layers.py").write_text("LAYERS = 3\n")
    jobs, planned = measured(snakemake, project, target)
    assert jobs == [f"timing {ONE}"]
    assert "a file that the measured program ran has changed: layers.py" in planned.output


def test_a_file_of_a_package_outside_the_project_makes_it_stale_where_it_can_be_found(own_model, snakemake):
    project, target, elsewhere = own_model
    (elsewhere / "theirs/parts.py").write_text("PARTS = 3\n")
    assert measured(snakemake, project, target)[0] == []  # not on this PYTHONPATH: as on a laptop without it
    planned = snakemake(project, "--dry-run", target, PYTHONPATH=str(elsewhere))
    assert planned.jobs == [f"timing {ONE}"]
    assert "theirs/parts.py" in planned.output


def test_the_specification_and_the_digests_stand_in_every_result(finished_project):
    folder = finished_project / "results/runs" / ONE
    timing, capture = (json.loads((folder / f"{name}.json").read_text()) for name in ("timing", "capture"))
    for result in (timing, capture):
        assert result["specification"]["program"]["run"] == ONE
        assert len(result["sources"]) == 16
    records = json.loads((folder / "made.json").read_text())
    assert {"status.json", "kernels.csv", "kernels.parquet"} <= records.keys()


OLD = (10**9, 10**9)  # a time before that of any other file
EDITED_IN_THE_PAST = {
    "profile_grid/questions/a_forward_time/table.py": ["summaries", "answers", "page"],
    "profile_grid/questions/a_forward_time/definitions.md.j2": ["answers"],
    "profile_grid/figures/theme.py": ["figures", "page"],
    "kernel_tables/kernel_classes/class_rules.toml": [f"tables_of_capture {ONE}", "merge", "page"],
}


@pytest.mark.parametrize(("file", "expected"), EDITED_IN_THE_PAST.items(), ids=EDITED_IN_THE_PAST)
def test_code_that_is_older_than_the_results_counts_by_what_it_says(copied, snakemake, file, expected):
    edited(file)(copied)
    os.utime(copied / file, OLD)
    planned = snakemake(copied, "--dry-run")
    assert planned.status == 0, planned.output
    assert set(expected) <= set(planned.jobs)
    assert not [job for job in planned.jobs if job.startswith(("timing", "capture"))]


@pytest.mark.parametrize("remembered", [True, False], ids=["with .snakemake", "without .snakemake"])
def test_a_result_that_is_replaced_by_one_with_an_older_time_is_merged_again(project, snakemake, remembered):
    if not remembered:
        shutil.rmtree(project / ".snakemake")
    path = project / f"results/runs/{ONE}/timing.json"
    result = json.loads(path.read_text())
    result["program"]["step_seconds"] = [2 * seconds for seconds in result["program"]["step_seconds"]]
    path.write_text(json.dumps(result))
    os.utime(path, OLD)
    planned = snakemake(project, "--dry-run")
    assert {"merge", "summaries", "page", "answers"} <= set(planned.jobs)
    assert f"timing {ONE}" not in planned.jobs


@pytest.mark.parametrize(
    ("file", "job"),
    [
        ("results/tables/runs.csv", "merge"),
        ("results/answers/a_forward_time.md", "answers"),
        ("results/figures/phase_times.svg", "figures"),
        ("results/report.html", "page"),
        (f"results/runs/{ONE}/kernels.csv", f"tables_of_capture {ONE}"),
    ],
)
def test_an_output_that_is_not_the_one_that_was_made_is_made_again(project, snakemake, file, job):
    before = (project / file).stat()
    with (project / file).open("r+b") as stream:
        stream.write(b"X")
    os.utime(project / file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert job in snakemake(project, "--dry-run").jobs


def test_touch_makes_nothing_valid(project, snakemake):
    edited("profile_grid/figures/theme.py")(project)
    assert snakemake(project, "--touch", "--cores", "1").status == 0
    assert "figures" in snakemake(project, "--dry-run").jobs


def test_a_job_that_is_forced_makes_again_what_reads_its_outputs(project, snakemake):
    planned = snakemake(project, "--dry-run", "--forcerun", "results/tables/provenance.json")
    assert {"merge", "summaries", "page", "complete"} <= set(planned.jobs)
    assert not [job for job in planned.jobs if job.startswith(OF_RUNS)]


def test_a_snakemake_that_keeps_forced_files_elsewhere_is_refused(monkeypatch):
    class Workflow:
        dag = SimpleNamespace(forcefiles=[], forcerules=set())
        modifier = SimpleNamespace(modify_rulename=lambda name: name)

    reruns = Reruns(Workflow(), ROOT)
    reruns.add_measurement("one", ["made"], lambda: "a reason")
    with pytest.raises(WorkflowError, match="does not keep forcefiles as a set"):
        reruns.inputs("made")({})
