"""The tables of a study as they lie in results/tables: each is read when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pandas as pd


class TablesOnDisk(Mapping):
    """The Parquet tables in a folder by name, read once and only when they are asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read: dict[str, pd.DataFrame] = {}

    def __getitem__(self, name: str) -> pd.DataFrame:
        if name not in self._read:
            path = self.folder / f"{name}.parquet"
            if not path.exists():
                raise KeyError(name)
            self._read[name] = pd.read_parquet(path)
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return (path.stem for path in sorted(self.folder.glob("*.parquet")))

    def __len__(self) -> int:
        return sum(1 for _ in self)
