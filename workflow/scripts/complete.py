"""Writes complete.json if no stage of a run has to be measured again; else fails and names the incomplete runs."""

import sys
from collections import Counter
from pathlib import Path

from pyarrow.parquet import ParquetFile  # no pandas: this runs last, after all documents, and pandas takes longer

from profile_grid.files import write_json
from profile_grid.results.results import FINAL_STATUSES
from profile_grid.study.stage import Stage
from profile_grid.study.stages import NOT_ASKED, STAGES


def main(*, runs: Path, output: Path) -> None:
    """Reads the statuses from the file `runs`, the merged table of runs."""
    with ParquetFile(runs) as file:
        rows = file.read().to_pylist()
    incomplete = [(row, stage) for row in rows for stage in STAGES if is_incomplete(row, stage)]
    if incomplete:
        count = len({row["run"] for row, _ in incomplete})
        lines = [f"{count} of {len(rows)} runs are incomplete; the documents say which numbers are missing:"]
        lines += [f"  {row['run']}: {row['reason']} (logs/{row['run']}/{stage.name}.log)" for row, stage in incomplete]
        files = " ".join(f"results/runs/{row['run']}/{stage.result_file}" for row, stage in incomplete)
        lines.append(f"once the cause is fixed: snakemake --cores 1 all --forcerun {files}")
        sys.exit("\n".join(lines))
    statuses = Counter(map(last_status, rows))
    write_json(output, {"runs": len(rows), "statuses": dict(statuses.most_common())})
    print("read results/answers/answers.md, open results/report.html in a browser", file=sys.stderr)


def last_status(row: dict) -> str:
    """The status of the last requested stage of a run, among the stages that every run has."""
    statuses = [row[stage.status_column] for stage in STAGES if stage.of_every_run]
    return [status for status in statuses if status != NOT_ASKED][-1]


def is_incomplete(row: dict, stage: Stage) -> bool:
    """Whether a stage of the run of a row has to be measured again."""
    return row[stage.status_column] not in (*FINAL_STATUSES, NOT_ASKED)
