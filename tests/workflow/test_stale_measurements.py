"""Measurements of a model of the user's own, planned again when their code or environment changes, and only then."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from tests.workflow.conftest import TINY_GRID, copy_sources

ROOT = Path(__file__).parents[2]
RUN = "alpha_ctx8_forward"
TARGET = f"results/runs/{RUN}/timing.json"
CANARY = "canary9w2k"
MODEL = """
import os
import helper
from cs336_model.model import TransformerLM

def Model(num_layers, **sizes):
    return TransformerLM(num_layers=num_layers + int(os.environ.get("FOO", "0").isalpha()), **sizes)
"""
EDITS_ITSELF = """
import pathlib
pathlib.Path("helper.py").write_text("N = 2")
"""


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A checkout whose workflow runs in other folders."""
    return copy_sources(ROOT, tmp_path_factory.mktemp("base") / "checkout")


def users_folder(folder, model):
    """A folder with a model, and with files that have the names of modules of the measured program and of Python."""
    folder.mkdir()
    config = yaml.safe_load(TINY_GRID)
    config |= {"program": {"constructor": "my_model:Model"}, "environment": ["FOO"]}
    (folder / "grid.yaml").write_text(yaml.safe_dump(config))
    for name, text in {"my_model": model, "helper": "N = 1", "benchmark": "raise OSError", "code": "C = 1"}.items():
        (folder / f"{name}.py").write_text(text)
    return folder


@pytest.fixture(scope="module")
def measured(base, snakemake, tmp_path_factory):
    """A user's folder with one measurement."""
    folder = users_folder(tmp_path_factory.mktemp("user") / "folder", MODEL)
    run = in_folder(snakemake, base, folder, "--cores", "2", FOO=CANARY)
    assert run.status == 0, run.output
    return folder


@pytest.fixture
def user(measured, tmp_path):
    """A copy of that folder."""
    return Path(shutil.copytree(measured, tmp_path / "copy"))


def in_folder(snakemake, base, folder, *arguments, **environment):
    """Snakemake, as it is called where the workflow lies elsewhere."""
    arguments_of_folder = ("--directory", str(folder), "--configfile", str(folder / "grid.yaml"))
    return snakemake(base, *arguments_of_folder, *arguments, TARGET, **environment)


@pytest.fixture
def planned(snakemake, base, user):
    def plan(**environment):
        done = in_folder(snakemake, base, user, "--dry-run", **({"FOO": CANARY} | environment))
        assert done.status == 0, done.output
        return done

    return plan


def test_a_folder_with_a_file_called_benchmark_is_measured_once(planned, user):
    assert planned().jobs == []
    (user / "benchmark.py").write_text("raise ValueError")
    (user / "helper.py").write_text("# a remark\nN = 1")
    assert planned().jobs == []
    shutil.rmtree(user / ".snakemake")
    assert planned().jobs == []


def test_a_package_that_hides_a_helper_plans_the_measurement_again(planned, user):
    (user / "helper").mkdir()
    (user / "helper/__init__.py").write_text("N = 50")
    plan = planned()
    assert plan.jobs == [f"timing {RUN}"]
    assert "would run another file now: helper/__init__.py instead of helper.py" in plan.output


def test_another_value_of_the_environment_plans_the_measurement_again_and_no_value_is_written(planned, user):
    secret = planned(FOO="heron7b3")
    assert secret.jobs == [f"timing {RUN}"]
    assert "the environment has changed: FOO has another value" in secret.output
    threads = planned(OMP_NUM_THREADS="3")
    assert threads.jobs == [f"timing {RUN}"]
    assert "the environment has changed: OMP_NUM_THREADS was unset and is 3" in threads.output
    given = json.loads((user / TARGET).read_text())["environment"]
    assert (given["values"], list(given["digests"])) == ({}, ["FOO"])
    files = [path for path in user.rglob("*") if path.is_file()]
    assert [path for path in files if CANARY.encode() in path.read_bytes()] == []
    assert CANARY not in secret.output and "heron7b3" not in secret.output


def test_a_file_that_is_edited_while_it_is_measured_leaves_no_result(snakemake, base, tmp_path):
    folder = users_folder(tmp_path / "folder", MODEL + EDITS_ITSELF)
    run = in_folder(snakemake, base, folder, "--cores", "2")
    assert run.status != 0
    assert "helper.py: changed while it was measured; run again" in run.output
    assert not (folder / TARGET).exists()
