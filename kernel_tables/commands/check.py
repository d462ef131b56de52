"""The command that checks whether captures are complete: kernel-tables check CAPTURE ..."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_tables.commands import shared
from kernel_tables.errors import ERROR, IMPOSSIBLE, Finding, ImpossibleCapture

if TYPE_CHECKING:
    import pandas as pd

SUMMARY = "whether a capture is complete: one row per finding; exit status 1 if any finding is an error"
COMPLETE, INCOMPLETE = 0, 1


def add_options(parser: argparse.ArgumentParser) -> None:
    shared.add_captures(parser)
    shared.add_output(parser)
    parser.add_argument("--steps", type=int, metavar="N", help="how many measured steps each process should have")
    shared.add_step_name(parser)


def run(options: argparse.Namespace) -> int:
    shared.require_output(options, *options.captures)
    table = check_table(options.captures, options.steps, options.step_name, up_to_damage=options.up_to_damage)
    if shared.wants_text(options):
        from kernel_tables.terminal.findings import completeness_lines

        shared.show(completeness_lines(table, shared.text_width()), options)
    else:
        shared.write(table, options)
    return INCOMPLETE if (table["severity"] == ERROR).any() else COMPLETE


def check_table(
    paths: Sequence[Path], expected_steps: int | None, step_name: str, *, up_to_damage: bool = False
) -> pd.DataFrame:
    """One row per finding: severity, code, message. With several captures, the first column is the name of the file,
    empty for findings about several files."""
    from kernel_tables.ranks.communication import findings_of_ranks
    from kernel_tables.ranks.ranks import ranks_of
    from kernel_tables.trace import Trace
    from kernel_tables.views.completeness import as_table

    rows: list[tuple[str, Finding]] = []
    with ExitStack() as stack:
        traces = []
        for path in paths:
            try:
                traces.append(stack.enter_context(Trace(path, up_to_damage=up_to_damage)))
                rows += [(path.name, finding) for finding in traces[-1].check(expected_steps, step_name)]
            except ImpossibleCapture as error:  # so damaged that it cannot be opened
                rows += [(path.name, finding) for finding in error.findings]
        if not any(finding.code in IMPOSSIBLE for _, finding in rows):
            rows += [("", finding) for finding in findings_of_ranks(ranks_of(traces), step_name)]
    table = as_table([finding for _, finding in rows])
    if len(paths) > 1:
        table.insert(0, "capture", [name for name, _ in rows])
    return table
