"""The order of the measurements: those that take longest begin first, and the tables of a run wait for no other run.

A program stands for the measured one that leaves nothing to make tables from: their jobs begin, and fail."""

import json


def test_the_longest_measurements_begin_first_and_the_tables_of_a_run_as_soon_as_they_can(fake_project, snakemake):
    wanted = [f"results/runs/{model}_ctx8_forward/status.json" for model in ("one", "two", "three")]
    ran = snakemake(fake_project, "--cores", "1", *wanted)
    captures = [f"capture {model}_ctx8_forward" for model in ("three", "two", "one")]
    others = [
        f"{rule} {model}_ctx8_forward" for model in ("three", "two", "one") for rule in ("timing", "tables_of_capture")
    ]
    assert ran.jobs == [*captures, *others]
    planned = json.loads((fake_project / ".snakemake" / "measurements.json").read_text())
    assert {path.rpartition("/")[2] for path in planned} == {"timing.json", "capture.json"}
    assert len(planned) == 6
    assert "[1/6] capture three_ctx8_forward ..." in ran.output
    assert "[6/6] timing  one_ctx8_forward: " in ran.output
