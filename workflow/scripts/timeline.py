"""One step of one run for the page: `python -m workflow.scripts.timeline --run NAME --folder results/runs/NAME ...`."""

import argparse
import gzip
import json
from contextlib import ExitStack
from pathlib import Path

from kernel_tables.trace import Trace
from kernel_tables.views.perfetto import write_timeline
from profile_grid.files import replacing, write_table
from profile_grid.results.results import read_result
from profile_grid.stages.capture.rank_tables import files_of
from profile_grid.stages.capture.timeline import empty_timeline, timeline
from profile_grid.study.stages import CAPTURE
from workflow.command import run_command


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", required=True, help="the run's name")
    parser.add_argument(
        "--folder", type=Path, required=True, help="folder of its captures, capture.json and status.json"
    )
    parser.add_argument("--output", type=Path, required=True, help="timeline.parquet; a CSV file is written next to it")
    parser.add_argument("--trace", type=Path, required=True, help="the complete window for Perfetto: .json.gz")
    parser.add_argument("--kernel-classes", type=json.loads, default=[], help="custom rules for classes, as JSON")
    arguments = parser.parse_args()
    status = json.loads((arguments.folder / "status.json").read_text())["status"]
    if status != "complete":
        write_table(arguments.output, empty_timeline())
        with replacing(arguments.trace) as output:
            output.write_bytes(gzip.compress(b'{"traceEvents": []}'))
        return
    captures = files_of(read_result(arguments.folder / CAPTURE.result))
    with ExitStack() as stack:
        opened = (Trace(arguments.folder / name, arguments.kernel_classes) for name in captures)
        traces = [stack.enter_context(trace) for trace in opened]
        write_table(arguments.output, timeline(traces, arguments.run))
        with replacing(arguments.trace) as output:
            write_timeline(traces, output)


if __name__ == "__main__":
    run_command(main)
