"""Draws figures: `python -m workflow.scripts figures --tables results/tables --output FOLDER --figures NAME`."""

from pathlib import Path

from profile_grid.figures import panels, paper
from profile_grid.study.catalogue import question_of_figure
from profile_grid.tables.on_disk import COLUMNS_FOR_SUMS, TablesOnDisk, declared_tables


def main(*, tables: Path, output: Path, figures: list[str]) -> None:
    every_figure = panels.all_figures(dict.fromkeys(map(question_of_figure, figures)))
    on_disk = TablesOnDisk(tables, columns=COLUMNS_FOR_SUMS, declared=declared_tables())
    for name in figures:
        paper.write_figure(every_figure[name], on_disk, output)
