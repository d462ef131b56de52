"""The mutants of mutants.toml."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

CATALOGUE = Path(__file__).with_name("mutants.toml")


@dataclass(frozen=True)
class Mutant:
    """One small fault: in `file` the text `old`, which stands there once, becomes `new`; `killed_by` is the test that
    fails then."""

    file: str
    old: str
    new: str
    breaks: str
    killed_by: str

    @property
    def test_file(self) -> str:
        return self.killed_by.partition("::")[0]

    @property
    def test_name(self) -> str:
        """The name of the test's function, without its class and parameters."""
        return self.killed_by.rpartition("::")[2].partition("[")[0]


def read_mutants() -> list[Mutant]:
    """The mutants in their order."""
    return [Mutant(**entry) for entry in tomllib.loads(CATALOGUE.read_text("utf-8"))["mutant"]]
