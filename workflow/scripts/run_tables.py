"""Makes the tables of one run from its capture: `python -m workflow.scripts.run_tables --capture capture.json ...`.

Writes kernels, phases and ranges as CSV and Parquet, and status.json: whether the capture is whole, and what was odd.
Where there is nothing to read (out of memory, incomplete) the tables are empty and the status says why.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from profile_grid.files import write_json, write_table
from profile_grid.merging.run_tables import tables_of_capture
from workflow.command import run_command


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--capture", type=Path, required=True, help="capture.json; capture.sqlite lies beside it")
    parser.add_argument("--kernel-classes", type=json.loads, default=[], help="own class rules, as JSON")
    parser.add_argument("--output", type=Path, required=True, help="folder of the tables and status.json")
    arguments = parser.parse_args()
    capture = json.loads(arguments.capture.read_text())
    status, tables = tables_of_capture(capture, arguments.capture.parent / "capture.sqlite", arguments.kernel_classes)
    for name, table in tables.items():
        write_table(arguments.output / f"{name}.csv", table)
    write_json(arguments.output / "status.json", status)


if __name__ == "__main__":
    run_command(main)
