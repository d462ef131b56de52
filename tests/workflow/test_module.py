"""The workflow as a module of somebody else's, in a folder with settings of its own."""

import json
import subprocess

import pytest

from tests.workflow.conftest import ROOT, TINY_GRID, copy_sources

MODULE = """\
configfile: "config/config.yaml"


module profile_grid:
    snakefile:
        {snakefile}
    config:
        config


use rule * from profile_grid as grid_*
"""
OWN = "grid: mine\ngrids: {mine: [{models: [tiny], context_lengths: [16], modes: [forward]}]}\n"


@pytest.fixture
def folder(tmp_path):
    """The folder of somebody who deploys workflows, and has a script with the name of one of ours."""
    for name in ("config", "workflow/scripts"):
        (tmp_path / "own" / name).mkdir(parents=True)
    (tmp_path / "own/config/config.yaml").write_text(OWN)
    (tmp_path / "own/workflow/scripts/plan.py").write_text("raise SystemExit('the wrong script')\n")
    return tmp_path / "own"


def write_module(folder, snakefile, more=""):
    (folder / "workflow/Snakefile").write_text(
        MODULE.format(snakefile=snakefile).replace("config\n\n", f"config\n{more}\n")
    )


def test_a_module_plans_its_callers_grid_and_has_its_other_settings_from_the_project(folder, snakemake):
    write_module(folder, f'"{ROOT}/workflow/Snakefile"')
    run = snakemake(folder, "--dry-run", "--cores", "1")
    assert run.status == 0, run.output
    assert {"grid_timing tiny_ctx16_forward", "grid_capture tiny_ctx16_forward", "grid_page", "grid_everything"} <= set(
        run.jobs
    )
    assert not (folder / "results").exists()


def test_a_module_of_a_commit_runs_the_programs_of_that_commit(folder, tmp_path, snakemake):
    (tmp_path / "host/owner").mkdir(parents=True)
    project = copy_sources(ROOT, tmp_path / "host/owner/project")
    (project / "config.yaml").write_text(TINY_GRID)
    git = ["git", "-C", str(project), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["init", "-q", "-b", "trunk"], ["add", "."], ["commit", "-q", "-m", "one"]):
        subprocess.run([*git, *command], check=True)
    (project / "workflow/scripts/plan.py").write_text("raise SystemExit('not of that commit')\n")
    (folder / "config/config.yaml").write_text("seed: 7\n")
    write_module(folder, 'github("owner/project", path="workflow/Snakefile", branch="trunk")')
    here = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_VALUE_0": "https://github.com/", "GITHUB_TOKEN": ""}
    here |= {"GIT_CONFIG_KEY_0": f"url.file://{tmp_path}/host/.insteadOf", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    run = snakemake(folder, "--cores", "1", "results/grid.json", **here)
    assert run.status == 0, run.output
    plan = json.loads((folder / "results/grid.json").read_text())
    assert [entry["run"] for entry in plan["runs"]] == ["alpha_ctx8_forward", "beta_ctx8_forward"]
    assert plan["runs"][0]["specifications"]["timing"]["program"]["seed"] == 7


def test_a_module_with_a_prefix_is_refused_with_what_to_do_instead(folder, snakemake):
    write_module(folder, f'"{ROOT}/Snakefile"', '    prefix: "elsewhere"\n')
    run = snakemake(folder, "--dry-run", "--cores", "1")
    assert run.status != 0
    assert "leave prefix away, and use --directory" in run.output
