"""Planning the grid: quick, and with nothing of what measures or analyses installed."""

import re
import subprocess
import sys

import pytest

from profile_grid.freshness.imports import imported_files
from profile_grid.study.stages import STAGES
from tests.workflow.conftest import ROOT, copy_sources

# Imported by the programs that measure, but without a part in what is measured.
NO_PART_IN_A_MEASUREMENT = {
    "profile_grid/__init__.py",
    "profile_grid/checkout.py",
    "profile_grid/errors.py",
    "profile_grid/files.py",
    "profile_grid/freshness/__init__.py",
    "profile_grid/freshness/digests.py",
    "profile_grid/freshness/versions.py",
    "profile_grid/host/__init__.py",
    "profile_grid/host/gpu_check.py",
    "profile_grid/host/leases/__init__.py",
    "profile_grid/host/leases/gpu_leases.py",
    "profile_grid/host/leases/host_locks.py",
    "profile_grid/host/leases/lease_server.py",
    "profile_grid/host/processes/__init__.py",
    "profile_grid/host/processes/job.py",
    "profile_grid/host/processes/measured_program.py",
    "profile_grid/host/processes/programs.py",
    "profile_grid/host/processes/ranks.py",
    "profile_grid/host/progress.py",
    "profile_grid/quantities.py",
    "profile_grid/results/__init__.py",
    "profile_grid/results/capture_identity.py",
    "profile_grid/results/results.py",
    "profile_grid/typed_json.py",
    "profile_grid/stages/__init__.py",
    "profile_grid/stages/capture/capture_problems.py",
    "workflow/command.py",
}
WITHOUT = """
import importlib.machinery, importlib.util, sys

class Without(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.split(".")[0] in {absent!r} else super().find_spec(name, path, target)

sys.meta_path = [Without if finder is importlib.machinery.PathFinder else finder for finder in sys.meta_path]
assert importlib.util.find_spec("torch") is None
from snakemake.cli import main
main(["--dry-run", "--cores", "1"])
"""
REPORT_IMPORTS = """
import sys
from snakemake.cli import main
try:
    main(["--dry-run", "--cores", "1"])
finally:
    print("IMPORTED", *sorted({name.split(".")[0] for name in sys.modules}))
"""


def run_python(program, folder):
    return subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, timeout=120)


@pytest.fixture
def fresh_checkout(tmp_path):
    return copy_sources(ROOT, tmp_path / "checkout")


def test_the_grid_is_planned_where_neither_torch_nor_pandas_is_installed(fresh_checkout):
    absent = {"torch", "nvtx", "pandas", "numpy", "pyarrow", "altair", "vl_convert"}
    done = run_python(WITHOUT.format(absent=absent), fresh_checkout)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^timing +60$", done.stdout + done.stderr, re.MULTILINE)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("time_limit_s=.inf", "config.yaml: time_limit_s: "),
        ("program={constructor: cs336_model.model:TransformerLM, sources: [envs]}", "'envs' is a folder"),
        ("kernel_classes=[{class: gemm, pattern: (}]", "the pattern '(' cannot be used"),
    ],
)
def test_a_value_that_cannot_be_used_ends_the_planning_with_one_line(fresh_checkout, snakemake, config, said):
    planned = snakemake(fresh_checkout, "--dry-run", "--config", config)
    assert planned.status != 0
    assert planned.jobs == []
    assert said in planned.output
    assert "Traceback" not in planned.output


def test_a_project_in_a_folder_with_a_brace_in_its_name_is_refused_with_its_path(tmp_path, snakemake):
    planned = snakemake(copy_sources(ROOT, tmp_path / "a{b"), "--dry-run")
    assert planned.status != 0
    assert f"move it: {tmp_path}/a{{b" in planned.output
    assert "Traceback" not in planned.output


def test_a_source_that_is_no_python_is_named_with_its_line(fresh_checkout, snakemake):
    (fresh_checkout / "my_model.py").write_text("class Model(:\n")
    planned = snakemake(fresh_checkout, "--dry-run", "--config", "program={constructor: my_model:Model}")
    assert planned.status != 0
    assert "my_model.py: line 1: invalid syntax" in planned.output


def test_the_rules_import_nothing_heavy(fresh_checkout):
    done = run_python(REPORT_IMPORTS, fresh_checkout)
    imported = set(re.search(r"^IMPORTED (.*)$", done.stdout, re.MULTILINE).group(1).split())
    assert "profile_grid" in imported
    assert not imported & {"torch", "nvtx", "altair", "vl_convert", "pyarrow", "re2"}


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)
def test_what_a_stage_imports_makes_it_stale_or_has_no_part_in_what_it_measures(stage):
    module = stage.module_path("measure")
    declared = {module, *stage.sources, "workflow/scripts/measure.py"}
    imported = {
        path
        for path in imported_files(ROOT, "workflow/scripts/measure.py", module)
        if not path.startswith(
            ("cs336_model/", "kernel_recorder/", "kernel_tables/", "profile_grid/study/", "range_marks/")
        )
        and not re.fullmatch(r"profile_grid/stages/\w+/(__init__|stage)\.py", path)  # settings are compared by value
    }
    assert imported - declared <= NO_PART_IN_A_MEASUREMENT
