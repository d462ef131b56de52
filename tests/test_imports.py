"""Each package imports only those that it may, and nothing heavy before it is needed."""

import ast
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# What runs in a recorded program, which may lack what reading needs.
IN_PROGRAMS = [f"kernel_tables.record.{name}" for name in ("handover", "profilers", "ranges", "recorder", "steps")]
IN_PROGRAMS += [f"kernel_tables.record.{name}" for name in ("injected.sitecustomize", "remedies", "timer")]
# What each package may import of this project.
MAY_IMPORT = {
    "kernel_tables": (),
    "kernel_tables.marks": (),
    **dict.fromkeys(IN_PROGRAMS, ("kernel_tables.files", "kernel_tables.marks", *IN_PROGRAMS)),
    # it runs in the measured process, which loads as little as possible
    "cs336_model": ("kernel_tables.marks", "kernel_tables.trace"),
    # it takes what is measured and how it ended, and starts the rest as programs
    "workflow": (
        "cs336_model.locks",
        "cs336_model.ranges",
        "cs336_model.results",
        "cs336_model.spec",
        "kernel_tables",
    ),
}


def imported_by(path: Path) -> set[str]:
    """What a file imports anywhere, at its top or inside a function, as names of modules or of what is in them; imports
    for type checkers alone do not count."""
    names = set()
    waiting: list[ast.AST] = [ast.parse(path.read_text())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        waiting += ast.iter_child_nodes(node)
    return names


def is_in(name: str, packages: Iterable[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_a_package_imports_no_other_but_those_it_may(package):
    inner = [other for other in MAY_IMPORT if other.startswith(f"{package}.")]
    place = ROOT.joinpath(*package.split("."))
    paths = [*place.rglob("*.py")] or [place.with_suffix(".py")]
    modules = {path: ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths}
    imported = {name for path in paths if not is_in(modules[path], inner) for name in imported_by(path)}
    projects = {name.partition(".")[0] for name in MAY_IMPORT}
    others = {name for name in imported if is_in(name, projects) and not is_in(name, [package])}
    assert {name for name in others if not is_in(name, MAY_IMPORT[package])} == set()


HEAVY = {"jinja2", "msgspec", "numpy", "pandas", "torch"}
LIGHT = "cs336_model.locks, cs336_model.results, cs336_model.spec, workflow.freshness, workflow.grid"


@pytest.mark.parametrize(
    "stages",
    [
        [  # what is imported one after the other in one process, and what must not be loaded then
            ("kernel_tables, kernel_tables.output, kernel_tables.errors, kernel_tables.files", HEAVY),
            ("kernel_tables.cli, kernel_tables.record.command, kernel_tables.record.nsys", HEAVY),
            # a recorded program, then a measured process, also that of attention alone
            ("kernel_tables.record.steps, kernel_tables.marks.modules", HEAVY - {"numpy", "torch"}),
            ("cs336_model.__main__, cs336_model.benchmark, cs336_model.attention", {"pandas"}),
        ],
        [
            # planning and waiting for a device: each of many jobs starts with it
            (f"{LIGHT}, workflow.runner, workflow.scripts.measure", {"pandas", "numpy", "torch"}),
            # tables are made where PyTorch is not installed, and without what only figures need
            ("kernel_tables.profile, kernel_tables.publish, kernel_tables.trace, kernel_tables.diagnose", {"torch"}),
            (
                "workflow.scripts.merge, workflow.scripts.run_tables, workflow.scripts.memory_tables",
                {"altair", "torch"},
            ),
            ("workflow.scripts.answers, workflow.scripts.figures, workflow.scripts.page", {"torch"}),
        ],
    ],
    ids=["inside", "outside"],
)
def test_nothing_heavy_is_loaded_before_it_is_needed(stages):
    lines = [f"import {names}\nprint(*sorted({heavy!r} & sys.modules.keys()))" for names, heavy in stages]
    command = [sys.executable, "-c", "\n".join(["import sys", *lines])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "\n" * len(stages)
