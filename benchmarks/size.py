"""Counts the size of the project without its tests, in the checkout or at a commit: `python -m benchmarks.size [REF]`.

Prints the lines of Python, rules, templates and scripts; the statements of Python; the share of its lines in
docstrings; and the bytes of all tracked files, including tests.
"""

import ast
import io
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import PurePath

from benchmarks.harness import ROOT, print_row, run

SUFFIXES = (".py", ".smk", ".j2", ".js")
WITH_DOCSTRING = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class ProjectSize:
    lines: int  # of all sources
    python_lines: int
    statements: int
    docstring_lines: int
    tracked_bytes: int  # of all files


def main(ref: str = "") -> None:
    size = size_of(tracked_files(ref))
    rows = {
        "lines": f"{size.lines:,}", "statements of Python": f"{size.statements:,}",
        "docstrings, of the lines of Python": f"{size.docstring_lines / size.python_lines:.1%}",
        "tracked, tests included, MB": f"{size.tracked_bytes / 1e6:.2f}",
    }  # fmt: skip
    print_row("outside tests", "", heading=True)
    for row in rows.items():
        print_row(*row)


def tracked_files(ref: str = "") -> dict[str, bytes]:
    """The content of each tracked file by its path, in the checkout or at a commit. Raises CalledProcessError outside a
    repository."""
    if ref:
        with tarfile.open(fileobj=io.BytesIO(_git("archive", "--format=tar", ref))) as archive:
            return {file.name: archive.extractfile(file).read() for file in archive if file.isfile()}
    names = _git("ls-files", "-z").decode().rstrip("\0").split("\0")
    return {name: (ROOT / name).read_bytes() for name in names if (ROOT / name).is_file()}


def size_of(files: dict[str, bytes]) -> ProjectSize:
    sources = {name: content.decode() for name, content in files.items() if is_counted(name)}
    python = {name: text for name, text in sources.items() if name.endswith(".py")}
    nodes = [node for text in python.values() for node in ast.walk(ast.parse(text))]
    return ProjectSize(
        lines=sum(len(text.splitlines()) for text in sources.values()),
        python_lines=sum(len(text.splitlines()) for text in python.values()),
        statements=sum(isinstance(node, ast.stmt) for node in nodes),
        docstring_lines=sum(map(_docstring_lines, nodes)),
        tracked_bytes=sum(map(len, files.values())),
    )


def is_counted(name: str) -> bool:
    """Whether the lines of a file count: it is a source, and not a test."""
    path = PurePath(name)
    is_source = path.suffix in SUFFIXES or path.name == "Snakefile"
    return is_source and path.parts[0] != "tests" and not path.name.startswith("test_")


def _docstring_lines(node: ast.AST) -> int:
    """The lines of the docstring of a module, class or function; 0 without one."""
    if not isinstance(node, WITH_DOCSTRING) or ast.get_docstring(node, clean=False) is None:
        return 0
    return node.body[0].end_lineno - node.body[0].lineno + 1


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, stdout=subprocess.PIPE).stdout


if __name__ == "__main__":
    run(main)
