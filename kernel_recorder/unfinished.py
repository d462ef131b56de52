"""The step in which a program ended: it gets another name, so that no mean over steps includes a partial step."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from kernel_recorder.in_process.settings import STEP, UNFINISHED

# The recorder's last range is the last of this name to end, and is around any range of the program with that name.
LAST_STEP = """
    SELECT event.rowid FROM NVTX_EVENTS AS event LEFT JOIN StringIds ON StringIds.id = event.textId
    WHERE COALESCE(event.text, StringIds.value) = ?
    ORDER BY event.end IS NULL DESC, event.end DESC, event.start LIMIT 1
"""
ANY_RANGES = "SELECT 1 FROM sqlite_master WHERE name = 'NVTX_EVENTS'"


def name_unfinished_step(capture: Path) -> None:
    """Gives the last step of a new capture the name UNFINISHED; a capture without steps is unchanged."""
    with closing(sqlite3.connect(capture)) as database, database:
        if not database.execute(ANY_RANGES).fetchone():
            return  # nsys writes no empty tables, and a program that crashed may have no ranges
        database.execute(
            f"UPDATE NVTX_EVENTS SET text = ?, textId = NULL WHERE rowid = ({LAST_STEP})", (UNFINISHED, STEP)
        )
