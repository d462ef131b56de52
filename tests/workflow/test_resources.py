"""What the jobs of a run ask of a scheduler, and where their files lie."""

import json
from types import SimpleNamespace

import pytest

from profile_grid.study.stages import CAPTURE, STAGES, TIMING
from workflow.paths import inputs_of_tables, run_files
from workflow.resources import JobResources

RUNS = {"one": {"gpus": 2}}
PROGRAM = {"d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12, "vocab_size": 10_000, "context_length": 512}
SPECIFICATIONS = {TIMING.name: {"one": json.dumps({"program": PROGRAM})}}
ONE = SimpleNamespace(run="one")


@pytest.mark.parametrize(("has_gpus", "in_allocation", "gpus"), [(True, False, 2), (False, False, 0), (True, True, 0)])
def test_a_job_asks_for_the_gpus_of_its_run_unless_it_is_in_an_allocation(has_gpus, in_allocation, gpus):
    resources = JobResources(RUNS, SPECIFICATIONS, has_gpus, in_allocation)
    assert resources.gpus(ONE) == gpus
    assert (resources.cores(ONE) == -1) == in_allocation
    assert resources.group(ONE) == "gpus_2"


def test_files_of_runs_are_those_of_the_stages_that_each_run_has():
    runs = {"one": SimpleNamespace(stages=[TIMING, CAPTURE]), "two": SimpleNamespace(stages=[TIMING])}
    assert run_files(runs, lambda stage: stage.result_file) == [
        "results/runs/one/timing.json", "results/runs/one/capture.json", "results/runs/two/timing.json",
    ]  # fmt: skip


def test_tables_of_a_run_are_made_from_its_own_stage_and_those_that_it_reads():
    for stage in (stage for stage in STAGES if stage.tables_of_a_run):
        assert inputs_of_tables(stage)[0] == stage.result_file
        assert {f"{name}.json" for name in stage.tables_of_a_run.reads} <= set(inputs_of_tables(stage))
