"""(i): what takes memory, from the phases and activations of a few runs."""

import pandas as pd
import pytest

from tests.workflow.small_tables import DEFAULTS
from workflow import text
from workflow.scripts import memory_parts
from workflow.scripts.memory_tables import CATEGORIES
from workflow.tables import make_table, read_tables, write_table

PLAIN = DEFAULTS | {"model": "nano", "context_length": 16, "mode": "train_step"}
RUNS = {  # by run, what differs, and MiB of parameters, of activations in the forward pass, and in the backward pass
    "small": ({}, 10, 5, 30), "middle": ({"context_length": 32}, 10, 60, 70),
    "large": ({"context_length": 64}, 10, 200, 300),
    "middle_1": ({"context_length": 32, "checkpoint": "1"}, 10, 20, 30),
    "pass": ({"mode": "forward", "context_length": 32}, 10, 10, 0),
}  # fmt: skip
MIB = 2**20


def keys(run: str) -> dict:
    return {"run": run} | PLAIN | RUNS[run][0]


def make_phases() -> pd.DataFrame:
    """The last of two steps counts: the first has more."""
    rows = []
    for run, (_, weights, forward, backward) in RUNS.items():
        phases = {"forward": forward, "backward": backward, "step": max(forward, backward)}
        for step, factor in ((0, 5 * MIB), (1, MIB)):
            for phase, activations in phases.items():
                for category, size in {"parameters": weights, "activations": activations}.items():
                    what = {"step": step, "phase": phase, "category": category, "bytes": size * factor}
                    rows += [keys(run) | what] if activations else []
    process = {"step": -1, "phase": "process", "category": "temporary", "bytes": 9000 * MIB}
    return make_table("memory_phases", [*rows, keys("small") | process])


@pytest.fixture(scope="module")
def tables(tmp_path_factory) -> dict[str, pd.DataFrame]:
    """What the document reads; the script has written memory_peak and the figure."""
    folder, middle = tmp_path_factory.mktemp("tables"), keys("middle")
    facts = {"memory_status": "complete", "device": "cpu", "device_name": "a CPU"}
    live = {f"{name.replace(' ', '_')}_bytes": 10 * MIB for name in CATEGORIES}
    rows = {
        "runs": [keys(run) | facts for run in RUNS],
        "memory_activations": [
            middle | {"part": part, "bytes": size, "allocations": 1} for part, size in (("norm", 20), ("head", 60))
        ],
        "memory_timeline": [
            middle | live | {"moment": moment, "ms": float(moment), "phase": phase, "live_bytes": 80 * MIB}
            for moment, phase in enumerate(["(outside)", "forward", "backward"])
        ],
        "memory_totals": [],
    }
    made = {"memory_phases": make_phases()} | {name: make_table(name, of) for name, of in rows.items()}
    for name, frame in made.items():
        write_table(frame, folder / f"{name}.parquet")
    outputs = [f"{folder}/{name}" for name in ("memory_peak.parquet", "memory_timeline.svg")]
    memory_parts.main(list(map(str, folder.glob("*.parquet"))), outputs)
    assert "backward" in (folder / "memory_timeline.svg").read_text()
    return read_tables(folder.glob("*.parquet"))


def test_a_run_has_its_peak_by_category(tables):
    peaks = tables["memory_peak"].drop_duplicates("run", keep="last").set_index("run")
    assert list(peaks.loc["middle", ["category", "bytes", "peak_bytes", "share", "fullest_phase"]]) == [
        "activations", 70 * MIB, 80 * MIB, 0.875, "backward",
    ]  # fmt: skip
    assert set(peaks.index[peaks["is_typical"]]) == {"middle", "pass"}  # not the one with checkpoints


def test_the_document_leads_with_the_typical_run(tables):
    document = text.environment(tables).get_template("i_memory.md.j2").render()
    lead = document.split("\n\n")[1]
    assert "80 MiB at its peak: 87.5 % activations, 12.5 % parameters (nano at context 32" in lead
    assert "most by `head` 75.0 %, `norm` 25.0 %" in document
