"""The command for the cost of communication between ranks: kernel-tables communication CAPTURE ..."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kernel_tables.commands import shared

if TYPE_CHECKING:
    import pandas as pd

NO_BYTES = (
    "bytes and bandwidth are missing for collectives without a 'bytes = …' range, as in 'all-reduce, bytes = 26214400',"
    " or NCCL payloads from all ranks"
)
NSYS_ADVICE = ": export the report with `nsys export --include-blobs=true`, or give the .nsys-rep itself"
SUMMARY = "time of a run on several GPUs, by rank and step: computation, communication alone, copies alone, idle"


def add_options(parser: argparse.ArgumentParser) -> None:
    shared.add_captures(parser)
    shared.add_output(parser)
    shared.add_step_name(parser)
    shared.add_classes(parser)
    parser.add_argument("--collectives", action="store_true", help="by collective: its bytes, times and bandwidth")


def run(options: argparse.Namespace) -> int:
    shared.require_output(options, *options.captures)
    from kernel_tables.ranks.collectives import collectives
    from kernel_tables.ranks.communication import communication, findings_of_ranks
    from kernel_tables.ranks.ranks import ranks_in_run, ranks_of

    with shared.open_traces(options) as traces:
        ranks = ranks_of(traces)
        table = (collectives if options.collectives else communication)(ranks, options.step_name)
        findings = findings_of_ranks(ranks, options.step_name)
        rank_count = ranks_in_run(ranks)
        by_nsys = all(trace.metadata.get("CAPTURE_BACKEND") != "torch" for trace in traces)
        for trace in traces:
            trace.require_possible()
    shared.write(table, options)
    for finding in findings:
        shared.say(finding.message)
    if table.empty and not options.collectives:
        shared.say(f"nothing ran on a device in a range '{options.step_name}'; --step-name names another")
    if rank_count > len(ranks):
        given = f"{len(ranks)} of the {rank_count} ranks of the run are given"
        shared.say(f"{given}: transfer, waiting and bandwidth need captures of all")
    elif len(ranks) == 1:
        shared.say("transfer and waiting cannot be separated with one rank; give the captures of all ranks")
    if _lacks_bytes(table):
        shared.say(f"{NO_BYTES}{NSYS_ADVICE if by_nsys else ''}")
    return 0


def _lacks_bytes(table: pd.DataFrame) -> bool:
    """Whether the size of any collective is unknown; steps without collectives do not count."""
    has_any = table["collectives"] > 0 if "collectives" in table else True
    return bool((table["bytes"].isna() & has_any).any())
