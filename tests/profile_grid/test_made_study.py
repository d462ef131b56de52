"""A made-up study, whose analysis the benchmarks time, is one that the merge takes."""

import pytest

from benchmarks.harness import made_config
from benchmarks.made_study import SOURCES, write_study
from profile_grid.documents.summaries import summary_tables
from profile_grid.merging.merge import merged_tables
from profile_grid.results.load_runs import read_runs
from profile_grid.study.catalogue import merged_of
from profile_grid.study.runs import grid_plan
from profile_grid.study.workloads import MODEL_STEPS


@pytest.fixture(scope="module")
def merged(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "study"
    write_study(folder, 60)
    runs = read_runs(grid_plan(made_config(60))["runs"], folder / "runs", SOURCES)
    return merged_tables(runs, folder / "runs")


def test_every_run_is_there_and_one_model_ran_out_of_memory(merged):
    statuses = merged["runs"].groupby("model")["capture_status"].unique()
    assert {name: list(found) for name, found in statuses.items()} == {
        "model0": ["complete"], "model1": ["complete"], "model2": ["complete"], "model3": ["complete"],
        "model4": ["out_of_memory"],
    }  # fmt: skip
    assert set(merged) == set(merged_of({MODEL_STEPS}))


def test_what_adds_up_in_the_example_adds_up_in_it(merged):
    shares = summary_tables(merged, ["class_shares"])["class_shares"]
    assert shares["run"].nunique() == 48  # of 60, 12 of the last model
