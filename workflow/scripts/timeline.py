"""One step of one run for the page: `python -m workflow.scripts timeline --run NAME --folder results/runs/NAME ...`."""

import gzip
import json
from contextlib import ExitStack
from pathlib import Path

from kernel_tables.trace import Trace
from kernel_tables.views.perfetto import write_timeline
from profile_grid.files import replacing, write_table
from profile_grid.results.results import read_result
from profile_grid.stages.capture.tables import files_of
from profile_grid.stages.capture.timeline import empty_timeline, timeline
from profile_grid.study.stages import CAPTURE


def main(*, run: str, folder: Path, output: Path, trace: Path, kernel_classes: list) -> None:
    """Writes the table to `output` and the complete window for Perfetto to `trace`, from the captures in `folder`."""
    status = json.loads((folder / "status.json").read_text())["status"]
    if status != "complete":
        write_table(output, empty_timeline())
        with replacing(trace) as partial:
            partial.write_bytes(gzip.compress(b'{"traceEvents": []}'))
        return
    captures = files_of(read_result(folder / CAPTURE.result_file))
    with ExitStack() as stack:
        traces = [stack.enter_context(Trace(folder / name, kernel_classes)) for name in captures]
        write_table(output, timeline(traces, run))
        with replacing(trace) as partial:
            write_timeline(traces, partial)
