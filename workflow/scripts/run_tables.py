"""Makes the tables of one run from the result of a stage: `python -m workflow.scripts.run_tables --stage capture ...`.

Writes them as CSV and Parquet, the status (whether the result is complete, with notes), and nsys's reports. If there is
nothing to read (out of memory, incomplete), the tables are empty and the status says why.
"""

import argparse
import json
from pathlib import Path

from profile_grid.files import write_json, write_table, write_text
from profile_grid.results.results import read_result
from profile_grid.study.stages import BY_NAME
from workflow.command import run_command


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stage", choices=list(BY_NAME), required=True)
    parser.add_argument("--folder", type=Path, required=True, help="folder of the run, for what is read and written")
    parser.add_argument(
        "--own-rules", type=json.loads, required=True, help="custom rules of config.yaml by their key, as JSON"
    )
    arguments = parser.parse_args()
    stage, folder = BY_NAME[arguments.stage], arguments.folder
    of_run = stage.tables_of_a_run
    result = read_result(folder / stage.result)
    module = stage.load("tables")
    status, tables = module.run_tables(result, folder, *(arguments.own_rules[key] for key in of_run.own_rules))
    for declared in module.TABLES:
        if declared.name in of_run.names:
            table = tables.get(declared.name, declared.empty())
            declared.check(table, declared.names)
            write_table(folder / f"{declared.name}.csv", table)
    for name, text in module.run_texts(result, folder).items() if of_run.texts else ():
        write_text(folder / name, text)
    write_json(folder / of_run.status_file, status)


if __name__ == "__main__":
    run_command(main)
