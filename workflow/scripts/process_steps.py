"""The timing.json of every process of every run -> results/processes/steps: every time that was measured."""

from collections.abc import Sequence
from pathlib import Path

from cs336_model.results import read_result
from workflow.scripts.merge import list_keys, list_times
from workflow.tables import make_table, write_table


def main(inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """Writes the table to the Parquet file of `outputs`, and its CSV. Raises BadResult for a timing that is none."""
    rows = []
    for result in map(read_result, map(Path, inputs)):
        if result.status == "complete":
            keys = list_keys({"timing": [result]}) | {"process": result.key["spec"]["process"]}
            for phase, seconds in list_times(result).items():
                rows += [keys | {"phase": phase, "step": step, "ms": 1e3 * s} for step, s in enumerate(seconds)]
    path = next(path for path in outputs if path.endswith(".parquet"))
    write_table(make_table("process_steps", rows), path)


if "snakemake" in globals():
    main(list(snakemake.input.results), list(snakemake.output))
