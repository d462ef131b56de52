"""The rooms of kernel_tables: what each module imports, imports inside functions and for type checkers included."""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "kernel_tables"
ROOMS = (
    "whole_files",
    "embedded",
    "marking",
    "markdown",
    "codes",
    "errors",
    "clean_text",
    "files",
    "intervals",
    "classes",
    "names",
    "reading",
    "attribution",
    "counters",
    "diagnosis",
    "views",
    "ranks",
    "comparison",
    "host",
    "output",
    "trace",
    "terminal",
    "page",
    "report",
    "recording",
    "commands",
    "__main__",
)


def module_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports() -> dict[str, set[str]]:
    """The modules of kernel_tables that each of its modules names in an import statement, wherever it stands."""
    modules = {module_of(path): path for path in PACKAGE.rglob("*.py")}
    found = {}
    for module, path in modules.items():
        named = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                named |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert not node.level, f"{module}: a relative import"
                named |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        found[module] = named & (modules.keys() - {"kernel_tables"})
    return found


def test_imports_form_no_circle():
    list(TopologicalSorter(imports()).static_order())  # CycleError names the circle


def test_every_room_imports_only_from_the_rooms_before_it():
    def place(module):
        return ROOMS.index(module.split(".")[1])

    backwards = [
        f"{module} imports {other}"
        for module, others in imports().items()
        if module != "kernel_tables"
        for other in others
        if place(other) > place(module)
    ]
    assert not backwards


def test_marking_imports_nothing_else_of_the_package_since_it_runs_in_other_programs():
    inside = {other for module, others in imports().items() if ".marking" in module for other in others}
    assert inside
    assert all(other.startswith("kernel_tables.marking") for other in inside)


def test_nothing_but_the_standard_library_and_the_package_itself_is_needed_to_ask_nsys_or_to_write_a_file():
    program = (
        "import sys, kernel_tables.reading.nsys, kernel_tables.files, kernel_tables.reading.publishable\n"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", program], cwd=PACKAGE.parent, capture_output=True, text=True, check=True
    )
    assert not {"numpy", "pandas", "pyarrow", "adbc_driver_sqlite"} & set(loaded.stdout.split())


def test_what_runs_in_a_recorded_program_imports_nothing_that_a_program_may_lack():
    inside = {other for module, others in imports().items() if ".recording.inside" in module for other in others}
    assert inside
    rooms = ("kernel_tables.recording.inside", "kernel_tables.marking", "kernel_tables.embedded")
    alone = ("kernel_tables.recording", "kernel_tables.whole_files")
    assert all(other.startswith(rooms) or other in alone for other in inside)
