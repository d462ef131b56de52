"""Makes the tables of one run from what one stage left: `python -m workflow.scripts.run_tables --stage capture ...`.

Writes them as CSV and Parquet, the status (whether the result is whole, and what was odd), and nsys's own reports.
Where there is nothing to read (out of memory, incomplete) the tables are empty and the status says why.
"""

from __future__ import annotations

import argparse
import json
from importlib import import_module
from pathlib import Path

from profile_grid.files import write_json, write_table, write_text
from profile_grid.measuring.freshness import digest_of_rules, digests_of_files
from profile_grid.measuring.results import StageResult, read_result
from profile_grid.study.stage import TablesOfARun
from profile_grid.study.stages import BY_NAME
from workflow.command import run_command


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stage", choices=list(BY_NAME), required=True)
    parser.add_argument("--folder", type=Path, required=True, help="folder of the run, for what is read and written")
    parser.add_argument(
        "--own-rules", type=json.loads, required=True, help="those of config.yaml by their key, as JSON"
    )
    parser.add_argument("--sources", required=True, help="digest of the files that decide what the tables hold")
    arguments = parser.parse_args()
    stage, folder = BY_NAME[arguments.stage], arguments.folder
    of_run = stage.tables_of_a_run
    result = read_result(folder / stage.result)
    status, tables = function_named(of_run.made_by)(
        result, folder, *(arguments.own_rules[key] for key in of_run.own_rules)
    )
    for declared in import_module(of_run.made_by.partition(":")[0]).TABLES:
        declared.check(tables[declared.name], declared.names)
    for name, table in tables.items():
        write_table(folder / f"{name}.csv", table)
    for name, text in texts(of_run, result, folder).items():
        write_text(folder / name, text)
    read_too = [read_result(folder / BY_NAME[name].result) for name in of_run.reads]
    made_from = made_of(result, read_too, arguments.sources, arguments.own_rules)
    write_json(folder / of_run.status_file, status | {"made_from": made_from})


def made_of(result: StageResult, read_too: list[StageResult], sources: str, own_rules: dict[str, list[dict]]) -> dict:
    """What the status tells of that from which the tables were made."""
    return {
        "specification": result.specification,
        "files": digests_of_files(result, *read_too),
        "sources": sources,
        "own_rules": digest_of_rules(own_rules),
    }


def texts(of_run: TablesOfARun, result: StageResult, folder: Path) -> dict[str, str]:
    """The text files of the run by name."""
    return function_named(of_run.texts_by)(result, folder) if of_run.texts_by else {}


def function_named(target: str):
    """The function that a "module:function" names."""
    module, _, function = target.partition(":")
    return getattr(import_module(module), function)


if __name__ == "__main__":
    run_command(main)
