"""The workflow as a module of somebody else's, in a folder with settings of its own."""

import json
import shutil
import subprocess

import pytest

from tests.workflow.conftest import ROOT, copy_sources, draw_only

MODULE = """\
configfile: "config/config.yaml"


module profile_grid:
    snakefile:
        {snakefile}
    config:
        config


use rule * from profile_grid as grid_*
"""
DEPLOYED = """\
from snakemake.utils import min_version


min_version("6.10.0")


configfile: "config/config.yaml"


# declare https://github.com/owner/project as a module
module project:
    snakefile: 
        github("owner/project", path="workflow/Snakefile", tag="v1")
    config:
        config


# use all rules from https://github.com/owner/project
use rule * from project
"""  # word by word what snakedeploy 0.17.1 writes
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


@pytest.fixture
def hosted(tmp_path):
    """This project as owner/project of a host, tagged; and what lets git take that for GitHub, without a network."""
    (tmp_path / "host/owner").mkdir(parents=True)
    project = copy_sources(ROOT, tmp_path / "host/owner/project")
    draw_only(project)
    git = ["git", "-C", str(project), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["init", "-q", "-b", "trunk"], ["add", "."], ["commit", "-q", "-m", "one"], ["tag", "v1"]):
        subprocess.run([*git, *command], check=True)
    (project / "workflow/scripts/plan.py").write_text("raise SystemExit('not of that commit')\n")
    here = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_VALUE_0": "https://github.com/", "GITHUB_TOKEN": ""}
    here |= {"GIT_CONFIG_KEY_0": f"url.file://{tmp_path}/host/.insteadOf", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    return project, here


def test_a_workflow_that_was_deployed_from_a_tag_measures_and_answers_with_the_programs_of_that_tag(
    folder, hosted, snakemake
):
    project, here = hosted
    for name in ("config", "profiles"):  # what `snakedeploy deploy-workflow` 0.17 copies
        shutil.copytree(ROOT / name, folder / name, dirs_exist_ok=True)
    (folder / "config/config.yaml").write_text(OWN + "seed: 7\n")
    (folder / "workflow/Snakefile").write_text(DEPLOYED)
    run = snakemake(folder, "--cores", "2", **here)
    assert run.status == 0, run.output
    assert "read results/answers/answers.md, open results/report.html in a browser" in run.output
    plan = json.loads((folder / "results/grid.json").read_text())
    assert [entry["run"] for entry in plan["runs"]] == ["tiny_ctx16_forward"]
    assert plan["runs"][0]["specifications"]["timing"]["program"]["seed"] == 7
    assert "tiny" in (folder / "results/answers/a_forward_time.md").read_text()
    assert (folder / "results/report.html").stat().st_size > 100_000
    copies = {path.name for path in (folder / ".snakemake/profile_grid").iterdir()}
    assert copies == {subprocess.check_output(["git", "-C", project, "rev-parse", "v1"], text=True).strip()}
    again = snakemake(folder, "--dry-run", "--cores", "2", **here)
    assert again.jobs == [], again.output


def test_a_module_with_a_prefix_is_refused_with_what_to_do_instead(folder, snakemake):
    write_module(folder, f'"{ROOT}/Snakefile"', '    prefix: "elsewhere"\n')
    run = snakemake(folder, "--dry-run", "--cores", "1")
    assert run.status != 0
    assert "leave prefix out, and use --directory" in run.output
