"""Two folders of results -> results/comparison/comparison.md.

The process is the unit of a comparison, since the steps of one process share clocks and memory. Each side is read as
files; nothing is measured.
"""

import json
import sys
from pathlib import Path

import pandas as pd

from kernel_tables import verdict
from workflow.tables import KEYS, make_table, read_table
from workflow.text import environment

FACTS = {
    "device_name": "device", "driver": "driver", "cuda": "CUDA", "torch": "PyTorch", "python": "Python",
    "nsys": "nsys", "cpu_name": "processor", "cores": "cores", "threads": "threads",
}  # fmt: skip


def main(before: str, after: str, fail_on: str, output: str) -> None:
    """Writes the comparison. Exits with status 1 if a run has the verdict that `fail_on` names."""
    sides = [read_side(Path(folder)) for folder in (before, after)]
    runs = pair_runs(*sides)
    text = (
        environment({"runs": sides[1]["runs"]})
        .get_template("compare.md.j2")
        .render(times=runs, facts=list_facts(*sides), changes=list_changes(sides, runs), verdict=verdict)
    )
    path = Path(output)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.strip() + "\n", encoding="utf-8")
    if found := verdict.fails(runs, fail_on).sum():
        sys.exit(f"compare: {found} of {len(runs)} runs: fail_on={fail_on}; see {output}")


def read_side(folder: Path) -> dict[str, pd.DataFrame]:
    """The tables runs, times (a row per run and process: its median step) and kernels of a folder of results.
    Exits with one line if they are missing."""
    tables = folder / "tables"
    if not ((tables / "steps.parquet").exists() and (tables / "runs.parquet").exists()):
        sys.exit(f"compare: {folder} has no tables/runs.parquet and steps.parquet: give a folder of results, such as a"
                 " copy of results/ made before a change")  # fmt: skip
    runs, times = read_table(tables / "runs.parquet"), read_table(tables / "steps.parquet")
    times = times[times["phase"] == "step"]
    times = times.groupby(["run", "process"], sort=False)["ms"].median().reset_index()
    kernels = tables / "kernels.parquet"
    kernels = read_table(kernels) if kernels.exists() else make_table("kernels")
    return {"runs": runs, "times": times, "kernels": kernels}


def pair_runs(before: dict[str, pd.DataFrame], after: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """A row per run of either side: its keys, times, ratio, interval and verdict, or `reason`, why there is none."""
    old, new = before["runs"].set_index("run", drop=False), after["runs"].set_index("run", drop=False)
    names = list(dict.fromkeys([*old.index, *new.index]))
    table = pd.concat([new[KEYS], old[KEYS]]).drop_duplicates("run").set_index("run", drop=False).loc[names]
    table["reason"] = [reason_against(name, old, new) for name in names]
    samples = []
    for label, side in (("before", before), ("after", after)):
        times = side["times"].set_index("run")["ms"]
        table[f"processes_{label}"] = times.groupby(level=0).size().reindex(names).fillna(0).astype(int).to_numpy()
        samples.append(times.set_axis(label + "/" + times.index.astype(str)))
    pairs = pd.DataFrame({"before": [f"before/{name}" for name in names], "after": [f"after/{name}" for name in names]})
    is_equal = table["reason"] == ""
    judged = verdict.judge_samples(pd.concat(samples), pairs[is_equal.to_numpy()], "process")
    table = table.join(judged.set_axis(table.index[is_equal]).drop(columns=["before", "after"]))
    table["verdict"] = table["verdict"].mask(~is_equal, "not comparable")
    for label, side in (("before", old), ("after", new)):
        table[f"peak_{label}"] = side.get("peak_allocated_bytes", pd.Series(dtype="float64")).reindex(names).to_numpy()
    return table.reset_index(drop=True)


def reason_against(name: str, old: pd.DataFrame, new: pd.DataFrame) -> str:
    """Why a run cannot be compared; empty if it can."""
    sides = {"before": old, "after": new}
    if missing := [word for word, side in sides.items() if name not in side.index]:
        return f"not there {missing[0]}"
    for word, side in sides.items():
        if side["timing_status"][name] != "complete":
            return f"{side['timing_status'][name]} {word}"
    for fact in ("device", "device_name", "d_model", "d_ff", "num_layers", "num_heads", "vocab_size"):
        values = [str(side[fact][name]) for side in sides.values()]
        if values[0] != values[1]:
            return f"{fact} is {values[0]}, then {values[1]}"
    return ""


def list_facts(before: dict[str, pd.DataFrame], after: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """What differs between the two measurements: fact, before, after."""
    table = pd.DataFrame({"fact": FACTS})
    for label, side in (("before", before), ("after", after)):
        values = side["runs"].reindex(columns=list(FACTS)).astype("object")
        table[label] = [("; ".join(map(str, values[column].dropna().unique())) or "not recorded") for column in FACTS]
    return table[table["before"] != table["after"]]


def list_changes(sides: list[dict[str, pd.DataFrame]], runs: pd.DataFrame) -> pd.DataFrame:
    """Of each run that is faster or slower, the five kernels whose time in a step changed most: run, kernel,
    before, after and the difference `more`, in ms."""
    told, times = runs["run"][runs["verdict"].isin([verdict.FASTER, verdict.SLOWER])], {}
    for label, side in zip(("before", "after"), sides, strict=True):
        kernels = side["kernels"][side["kernels"]["run"].isin(told) & (side["kernels"]["step"] >= 0)]
        ms = kernels.groupby(["run", "kernel"], sort=False)["total_ns"].sum() / 1e6
        times[label] = ms.div(kernels.groupby("run")["step"].nunique(), level="run")
    table = pd.DataFrame(times).fillna(0.0).reset_index()
    table["more"] = table["after"] - table["before"]
    return table.sort_values("more", key=abs, ascending=False, kind="stable").groupby("run", sort=False).head(5)


if "snakemake" in globals():
    options = json.loads(snakemake.params.options)
    main(options["before"], options["after"], options["fail_on"], snakemake.params.output)
