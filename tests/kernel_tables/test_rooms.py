"""The rooms of kernel_tables: what each module imports, imports inside functions and for type checkers included."""

import ast
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "kernel_tables"
ROOMS = (
    "version",
    "whole_files",
    "global_ids",
    "kineto",
    "markdown",
    "columns",
    "errors",
    "clean_text",
    "files",
    "intervals",
    "processors",
    "units",
    "kernel_classes",
    "kernel_names",
    "reading",
    "attribution",
    "counters",
    "diagnosis",
    "ranks",
    "views",
    "comparison",
    "host",
    "output",
    "trace",
    "frames",
    "page",
    "report",
    "terminal",
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


def test_nothing_but_the_standard_library_and_the_package_itself_is_needed_to_ask_nsys_or_to_write_a_file():
    program = (
        "import sys, kernel_tables.reading.nsys, kernel_tables.files, kernel_tables.reading.publishable\n"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", program], cwd=PACKAGE.parent, capture_output=True, text=True, check=True
    )
    assert not {"numpy", "pandas", "pyarrow", "adbc_driver_sqlite"} & set(loaded.stdout.split())
