"""Freezes what the code makes now, after the example was measured again: `python -m tests.golden`."""

import csv
import gzip
import io
import tempfile
from pathlib import Path

from tests.golden import test_captures, test_example, test_plan


def freeze(path: Path, rows: list[dict[str, str]]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    content = text.getvalue().encode()
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)


with tempfile.TemporaryDirectory() as scratch:
    folder = Path(scratch)
    for command, (name, keys) in test_captures.KEYS.items():
        captures = test_captures.PLANTED if command == "diagnose" else test_captures.FILES
        rows = [
            {"capture": test_captures.name_of(path)} | row
            for path in captures
            for row in test_captures.run_command(command, path, folder)
        ]
        rows.sort(key=lambda row: [row[key] for key in ("capture", *keys)])
        freeze(test_captures.GOLDEN / name, rows)
    test_example.make_answers(test_example.TABLES, folder / "answers")
    documents = {name: (folder / "answers" / f"{name}.md").read_text() for name in test_example.DOCUMENTS}
    cells = [cell for name, text in documents.items() for cell in test_example.cells_of(name, text)]
    freeze(test_example.FROZEN, [dict(zip(test_example.COLUMNS, cell, strict=True)) for cell in cells])
    freeze(test_plan.PLAN, test_plan.planned(folder))
