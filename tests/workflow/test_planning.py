"""Planning the grid: quick, and with nothing of what measures or analyses installed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.planning import dry_run_seconds, empty_folder, grid_folder
from tests.workflow.conftest import ROOT, copy_sources
from workflow.imported_files import imported_files

# Imported by the programs that measure, but without a part in what is measured.
NO_PART_IN_A_MEASUREMENT = {
    "profile_grid/__init__.py",
    "profile_grid/measuring/__init__.py",
    "profile_grid/measuring/capture_findings.py",
    "profile_grid/checkout.py",
    "profile_grid/errors.py",
    "profile_grid/files.py",
    "profile_grid/measuring/gpu_check.py",
    "profile_grid/measuring/host_locks.py",
    "profile_grid/measuring/leases.py",
    "profile_grid/measuring/long_output.py",
    "profile_grid/measuring/problems.py",
    "profile_grid/measuring/progress.py",
    "profile_grid/measuring/results.py",
    "profile_grid/measuring/typed_json.py",
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
    absent = {"torch", "nvtx", "pandas", "numpy", "pyarrow", "matplotlib", "plotly"}
    done = run_python(WITHOUT.format(absent=absent), fresh_checkout)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^timing +60$", done.stdout + done.stderr, re.MULTILINE)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("time_limit_s=.inf", "config.yaml: time_limit_s: "),
        ("program={constructor: cs336_model.model:TransformerLM, sources: [envs]}", "'envs' is a folder"),
        ("kernel_classes=[{class: gemm, pattern: (}]", "'(' is not a regular expression"),
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
    assert not imported & {"torch", "nvtx", "matplotlib", "plotly", "pyarrow", "kernel_tables", "cs336_model"}


def test_planning_sixty_runs_takes_at_most_two_and_a_half_seconds_more_than_an_empty_snakefile(tmp_path):
    _, empty = dry_run_seconds(empty_folder(tmp_path / "empty"), repeats=1)
    _, grid = dry_run_seconds(grid_folder(tmp_path / "grid", 60), repeats=1)
    assert grid - empty < 2.5  # processor time: the wall clock also counts what else this machine does


@pytest.mark.parametrize("stage", ["timing", "capture"])
def test_what_a_measuring_program_imports_is_a_source_of_it_or_has_no_part_in_it(stage):
    declared = set(re.findall(r'"((?:profile_grid|workflow)/[\w/]+\.py)"', sources_list(f"{stage.upper()}_SOURCES")))
    imported = {
        path
        for path in imported_files(ROOT, f"workflow/scripts/{stage}.py")
        if not path.startswith(("kernel_tables/", "cs336_model/"))
    }
    assert declared
    assert imported - declared <= NO_PART_IN_A_MEASUREMENT


def sources_list(name):
    rules = Path(ROOT / "workflow/rules/measure.smk").read_text()
    return re.search(rf"^{name} = MEASURED_PROGRAM \+ sources\(\n(.*?)^\)", rules, re.MULTILINE | re.DOTALL).group(1)
