"""Imports form no circle and point one way: from what measures and reads, through the tables, to what people read."""

import ast
import graphlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("cs336_model", "kernel_tables", "profile_grid", "workflow")

# A room may import itself, and the rooms above it here.
ROOMS = (
    "kernel_tables.whole_files",
    "kernel_tables.embedded",
    "kernel_tables.marking",  # runs inside a measured process, as cs336_model does
    "cs336_model",
    "cs336_model.ranges",
    "cs336_model.nvidia_smi",
    "cs336_model.arithmetic",
    "cs336_model.model",
    "cs336_model.program",
    "kernel_tables",
    "kernel_tables.recording",
    "kernel_tables.commands",
    "kernel_tables.__main__",
    "profile_grid",  # what stands at its root: files, numbers and Markdown as text
    "profile_grid.study",
    "profile_grid.measuring",
    "profile_grid.tables",
    "profile_grid.merging",
    "profile_grid.figures",
    "profile_grid.questions",
    "profile_grid.documents",
    "profile_grid.page",
    "profile_grid.sweep",
    "profile_grid.comparing",
    "profile_grid.sharing",
    "workflow",
)


def modules() -> dict[str, Path]:
    found = {}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            if not path.name.startswith("test_"):
                found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()
TREES = {name: ast.parse(path.read_text()) for name, path in MODULES.items()}


def imported_by(name: str) -> Iterator[str]:
    """The modules of this project that a module imports anywhere, at its top or inside a function; imports for type
    checkers alone do not count."""
    tree = TREES[name]
    only_checked = {
        id(node)
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and "TYPE_CHECKING" in ast.unparse(branch.test)
        for statement in branch.body
        for node in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if id(node) in only_checked:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                if inner in MODULES:
                    yield inner
                elif node.module in MODULES:
                    yield node.module


def room_of(name: str) -> str:
    """The room in which a module stands: the most specific of the names above."""
    fitting = [room for room in ROOMS if name == room or name.startswith(f"{room}.")]
    assert fitting, f"{name} stands in no room"
    return max(fitting, key=len)


GRAPH = {name: set(imported_by(name)) - {name} for name in MODULES}


def test_imports_form_no_circle():
    try:
        tuple(graphlib.TopologicalSorter(GRAPH).static_order())
    except graphlib.CycleError as error:
        pytest.fail(" -> ".join(reversed(error.args[1])))


def test_a_module_imports_no_room_below_its_own():
    rank = {name: ROOMS.index(room_of(name)) for name in MODULES}
    wrong = [
        f"{name} -> {other}" for name in sorted(MODULES) for other in sorted(GRAPH[name]) if rank[other] > rank[name]
    ]
    assert wrong == []


def test_only_what_runs_in_a_measured_process_imports_torch():
    def imports_torch(tree):
        names = [
            name
            for node in ast.walk(tree)
            if isinstance(node, (ast.Import, ast.ImportFrom))
            for name in ([alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""])
        ]
        return any(name.split(".")[0] == "torch" for name in names)

    inside = ("cs336_model", "kernel_tables.marking", "kernel_tables.recording.inside")
    outside = [name for name, tree in TREES.items() if not name.startswith(inside) and imports_torch(tree)]
    assert outside == []


def test_no_question_is_named_outside_its_folder_and_the_catalogue():
    questions = [path.name for path in (ROOT / "profile_grid/questions").iterdir() if (path / "table.py").exists()]
    assert questions
    files = [
        path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.suffix in {".py", ".smk", ".j2"}
    ]
    any_question = re.compile(rf"\b(?:{'|'.join(questions)})\b")
    named = [
        (path.relative_to(ROOT).as_posix(), question)
        for path in files
        if path.name != "catalogue.py"
        for question in any_question.findall(path.read_text())
        if question not in path.parts
    ]
    assert named == []
