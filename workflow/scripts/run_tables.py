"""Makes the tables of one run from the result of a stage: `python -m workflow.scripts run_tables --stage capture ...`.

Writes them as CSV and Parquet, the status (whether the result is complete, with notes), and nsys's reports. If there is
nothing to read (out of memory, incomplete), the tables are empty and the status says why.
"""

from pathlib import Path

from profile_grid.files import write_json, write_table, write_text
from profile_grid.results.results import read_result
from profile_grid.study.stages import STAGE_BY_NAME


def main(*, stage: str, folder: Path, own_rules: dict) -> None:
    """Makes the tables in the run's folder; `own_rules` are the custom rules of config.yaml by their key."""
    declared_stage = STAGE_BY_NAME[stage]
    declared_tables, module = declared_stage.tables_of_a_run, declared_stage.load("tables")
    result = read_result(folder / declared_stage.result_file)
    status, tables = module.run_tables(result, folder, *(own_rules[key] for key in declared_tables.rule_keys))
    for table_spec in module.TABLES:
        if table_spec.name in declared_tables.names:
            table = tables.get(table_spec.name, table_spec.empty())
            table_spec.check(table, table_spec.names)
            write_table(folder / f"{table_spec.name}.csv", table)
    if declared_tables.texts:
        for name, text in module.run_texts(result, folder).items():
            write_text(folder / name, text)
    write_json(folder / declared_tables.status_file, status)
