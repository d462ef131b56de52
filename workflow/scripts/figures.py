"""Draws the figures: `python -m workflow.scripts.figures --tables results/tables --output results/figures`."""

from pathlib import Path

from profile_grid.figures.drawing import all_figures
from profile_grid.figures.paper import write_figure
from profile_grid.study.catalogue import question_of_figure
from profile_grid.tables.on_disk import SUMS, TablesOnDisk, declared_tables
from workflow.command import run_command


def main(*, tables: Path, output: Path, figures: list[str]) -> None:
    every_figure = all_figures(dict.fromkeys(map(question_of_figure, figures)))
    on_disk = TablesOnDisk(tables, columns=SUMS, declared=declared_tables())
    for name in figures:
        write_figure(every_figure[name], {table: on_disk[table] for table in every_figure[name].tables}, output)


if __name__ == "__main__":
    run_command(main)
