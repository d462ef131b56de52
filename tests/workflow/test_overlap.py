"""No two measurements run at once, whatever Snakemake would allow: the grid ran on three cores, without the profile."""

import json
from itertools import pairwise


def test_no_two_measurements_of_a_grid_ran_at_the_same_time(finished_project):
    results = [
        *finished_project.glob("results/runs/*/timing.json"),
        *finished_project.glob("results/runs/*/capture.json"),
    ]
    assert len(results) == 4
    ran = sorted(json.loads(path.read_text())["program"]["ran_unix_s"] for path in results)
    for (_, ended), (started, _) in pairwise(ran):
        assert ended <= started


def test_the_measurements_that_waited_said_for_whom_and_how_long(first_run):
    folder, run = first_run
    waited = [json.loads(path.read_text())["waited_s"] for path in folder.glob("results/runs/*/timing.json")]
    assert max(waited) > 0
    assert "waits for this host: " in run.output
