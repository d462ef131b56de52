"""The mutants stand for today's code and tests: `python -m tests.mutants` plants them and runs the tests."""

import ast
from pathlib import Path

from tests.mutants.catalogue import read_mutants

ROOT = Path(__file__).parents[1]


def test_every_mutant_changes_a_text_that_stands_once_in_its_file():
    wrong = [
        (mutant.file, mutant.old)
        for mutant in read_mutants()
        if mutant.old == mutant.new or (ROOT / mutant.file).read_text("utf-8").count(mutant.old) != 1
    ]
    assert wrong == []


def test_every_mutant_names_a_test_that_is_there():
    missing = [mutant.killed_by for mutant in read_mutants() if mutant.test_name not in functions(mutant.test_file)]
    assert missing == []


def test_there_are_sixty_mutants_in_all_packages():
    packages = [mutant.file.partition("/")[0] for mutant in read_mutants()]
    assert len(packages) >= 60
    assert set(packages) >= {"kernel_tables", "profile_grid", "cs336_model", "workflow"}


def functions(file: str) -> set[str]:
    """The names of the functions in a file of tests."""
    tree = ast.parse((ROOT / file).read_text("utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
