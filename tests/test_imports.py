"""Imports form no circle, and each package imports only those that it may."""

import ast
import graphlib
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# What runs in a recorded program, which may lack what reading needs.
IN_PROGRAMS = [f"kernel_tables.record.{name}" for name in ("handover", "profilers", "ranges", "recorder", "steps")]
IN_PROGRAMS += ["kernel_tables.record.injected.sitecustomize"]
# What each package may import of this project.
MAY_IMPORT = {
    "kernel_tables": (),
    "kernel_tables.marks": (),
    **dict.fromkeys(IN_PROGRAMS, ("kernel_tables.files", "kernel_tables.marks", *IN_PROGRAMS)),
    # it runs in the measured process, which loads as little as possible
    "cs336_model": ("kernel_tables.marks", "kernel_tables.trace"),
    # it takes what is measured and how it ended, and starts the rest as programs
    "workflow": (
        "cs336_model.flops",
        "cs336_model.locks",
        "cs336_model.ranges",
        "cs336_model.results",
        "cs336_model.spec",
        "kernel_tables",
    ),
}


def modules() -> dict[str, Path]:
    found = {}
    packages = [package for package in MAY_IMPORT if "." not in package]
    for path in (path for package in packages for path in (ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if not path.name.startswith("test_"):
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


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


@cache
def graph() -> dict[str, set[str]]:
    """By module of this project, those that it imports."""
    imports = {}
    for module, path in MODULES.items():
        names = imported_by(path)
        imports[module] = {n if n in MODULES else n.rpartition(".")[0] for n in names} & MODULES.keys() - {module}
    return imports


def is_in(name: str, packages: Iterable[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def test_imports_form_no_circle():
    try:
        tuple(graphlib.TopologicalSorter(graph()).static_order())
    except graphlib.CycleError as error:
        pytest.fail(" -> ".join(reversed(error.args[1])))


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_a_package_imports_no_other_but_those_it_may(package):
    inner = [other for other in MAY_IMPORT if other.startswith(f"{package}.")]
    members = {name for name in MODULES if is_in(name, [package]) and not is_in(name, inner)}
    imported = {other for name in members for other in graph()[name] if not is_in(other, [package])}
    assert members
    assert {other for other in imported if not is_in(other, MAY_IMPORT[package])} == set()


def test_only_what_runs_in_a_measured_process_imports_torch():
    # in a notebook, `recorded` runs in the program itself
    inside = ("cs336_model", "kernel_tables.marks", "kernel_tables.record.context", *IN_PROGRAMS)
    outside = [path for name, path in MODULES.items() if not is_in(name, inside)]
    assert [path for path in outside if any(is_in(name, ["torch"]) for name in imported_by(path))] == []


HEAVY = {"jinja2", "msgspec", "numpy", "pandas", "torch"}
LIGHT = "cs336_model.locks, cs336_model.results, cs336_model.spec, workflow.freshness, workflow.grid"


@pytest.mark.parametrize(
    "stages",
    [
        [  # what is imported one after the other in one process, and what must not be loaded then
            ("kernel_tables, kernel_tables.columns, kernel_tables.errors, kernel_tables.files", HEAVY),
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
