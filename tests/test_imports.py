"""Imports form no circle and point one way: from what measures and reads, through the tables, to what people read."""

import ast
import graphlib
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("cs336_model", "kernel_recorder", "kernel_tables", "profile_grid", "range_marks", "workflow")

# A room may import itself, and the rooms above it here.
ROOMS = (
    "range_marks",  # runs inside a measured process, as cs336_model does
    "kernel_tables.whole_files",
    "kernel_tables.global_ids",
    "kernel_tables.kineto",
    "cs336_model",
    "cs336_model.ranges",
    "cs336_model.nvidia_smi",
    "cs336_model.arithmetic",
    "cs336_model.model",
    "cs336_model.program",
    "kernel_tables",
    "kernel_recorder",
    "kernel_tables.commands",
    "kernel_tables.__main__",
    "profile_grid",  # what stands at its root: files, numbers and Markdown as text
    "profile_grid.study.dimensions",
    "profile_grid.study.workloads",
    "profile_grid.study.stage",
    "profile_grid.stages.*.stage",
    "profile_grid.study",
    "profile_grid.freshness",
    "profile_grid.results",
    "profile_grid.host",
    "profile_grid.tables",
    "profile_grid.stages",
    "profile_grid.planning",
    "profile_grid.stages.operator.trial",
    "profile_grid.merging",
    "profile_grid.figures",
    "profile_grid.questions",
    "profile_grid.documents",
    "profile_grid.page",
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


def imported_by(name: str) -> Iterator[str]:
    """The modules of this project that a module imports anywhere, at its top or inside a function; imports for type
    checkers alone do not count."""
    tree = ast.parse(MODULES[name].read_text())
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


def all_imports(path: Path) -> list[str]:
    """The modules that a file imports anywhere, whoever's they are."""
    return [
        name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in ([alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""])
    ]


def room_of(name: str) -> str:
    """The room in which a module stands: the most specific of the names above."""
    fitting = [room for room in ROOMS if fnmatch(name, room) or fnmatch(name, f"{room}.*")]
    assert fitting, f"{name} stands in no room"
    return max(fitting, key=len)


@cache
def graph() -> dict[str, set[str]]:
    """By module those that it imports: read by the one worker that runs these tests."""
    return {name: set(imported_by(name)) - {name} for name in MODULES}


def test_imports_form_no_circle():
    try:
        tuple(graphlib.TopologicalSorter(graph()).static_order())
    except graphlib.CycleError as error:
        pytest.fail(" -> ".join(reversed(error.args[1])))


def test_a_module_imports_no_room_below_its_own():
    rank = {name: ROOMS.index(room_of(name)) for name in MODULES}
    wrong = [
        f"{name} -> {other}" for name in sorted(MODULES) for other in sorted(graph()[name]) if rank[other] > rank[name]
    ]
    assert wrong == []


# What each package may import of the others, so that it can be installed without the rest.
MAY_IMPORT = {
    "range_marks": (),
    "kernel_tables": (),
    # the command `record`, which is refused where the recorder is not installed
    "kernel_tables.commands.record": ("kernel_recorder", "kernel_tables"),
    "kernel_recorder": ("kernel_tables", "range_marks"),
    # it runs in programs of others, which may lack what reading needs
    "kernel_recorder.in_process": ("kernel_tables.kineto.names", "kernel_tables.whole_files", "range_marks"),
}


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_a_package_imports_no_other_but_those_it_may(package):
    inner = [other for other in MAY_IMPORT if other.startswith(f"{package}.")]
    members = {name for name in MODULES if is_in(name, [package]) and not is_in(name, inner)}
    imported = {other for name in members for other in graph()[name] if not is_in(other, [package])}
    assert members
    assert {other for other in imported if not is_in(other, MAY_IMPORT[package])} == set()


def test_the_libraries_name_no_package_of_the_pipeline():
    libraries = [path for name, path in MODULES.items() if is_in(name, MAY_IMPORT)]
    assert [path for path in libraries if re.search(r"cs336_model|profile_grid", path.read_text())] == []


def is_in(name: str, packages: Iterable[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def test_only_what_runs_in_a_measured_process_imports_torch():
    def imports_torch(path):
        return any(name.split(".")[0] == "torch" for name in all_imports(path))

    inside = ("cs336_model", "range_marks", "kernel_recorder.in_process")
    outside = [name for name, path in MODULES.items() if not name.startswith(inside) and imports_torch(path)]
    assert outside == []


def test_a_stage_is_declared_with_the_standard_library_and_other_declarations_alone():
    declarations = [path for path in MODULES if fnmatch(path, "profile_grid.stages.*.stage")]
    assert declarations
    for name in declarations:
        roots = {imported.split(".")[0] for imported in all_imports(MODULES[name])}
        assert roots - {"profile_grid", "cs336_model"} <= sys.stdlib_module_names, name  # its values of variants
        others = {imported for imported in graph()[name] if not fnmatch(imported, "profile_grid.stages.*.stage")}
        known = {"profile_grid.study.stage", "profile_grid.study.workloads", "cs336_model.program.variants.values"}
        assert "profile_grid.study.stage" in others and others <= known, name


def test_the_packages_of_stages_are_empty_so_that_no_module_of_a_stage_loads_another():
    packages = [ROOT / "profile_grid/stages/__init__.py", *(ROOT / "profile_grid/stages").glob("*/__init__.py")]
    assert len(packages) > 6
    assert [path for path in packages if path.read_text()] == []


@pytest.mark.parametrize(("module", "heavy"), [("measure", {"pandas", "torch"}), ("tables", {"torch"})])
def test_a_stage_measures_without_pandas_and_makes_its_tables_without_torch(module, heavy):
    """A job starts in a fraction of a second, and tables are made where PyTorch is not installed."""
    loaded = "import importlib, sys; importlib.import_module({!r}); print(*sorted({!r} & sys.modules.keys()))"
    stages = [name for name in MODULES if fnmatch(name, f"profile_grid.stages.*.{module}")]
    assert len(stages) >= 6
    program = "; ".join(loaded.format(name, heavy) for name in stages)
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert dict(zip(stages, done.stdout.splitlines(), strict=True)) == dict.fromkeys(stages, "")


def test_tables_are_made_without_the_libraries_of_figures():
    program = (
        "import sys; from profile_grid.tables.on_disk import declared_tables; declared_tables();"
        " assert not {'altair', 'vl_convert', 'torch'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


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
