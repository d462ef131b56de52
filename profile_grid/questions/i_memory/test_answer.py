"""(i): what is live at the fullest moment, what is kept where, and where memory ran out."""

from dataclasses import replace

import pandas as pd
import pytest

from profile_grid.documents.documents import document_names
from profile_grid.documents.summaries import summary_tables
from profile_grid.stages.memory.tables import MEMORY_FAILED, tables_of_history
from tests.profile_grid.made_up import Made, merged
from tests.profile_grid.made_up_answers import document_of
from tests.profile_grid.made_up_history import made_up_history
from tests.profile_grid.test_answers import line_of

GIB, MIB = 2**30, 2**20
COUNTERS_MIB = {"requested_peak": 600, "allocated_peak": 660, "reserved_peak": 1200, "driver_used": 1800}


def recorded(runs: list[Made], counters_mib: dict | None = COUNTERS_MIB) -> dict[str, pd.DataFrame]:
    """The merged tables of runs with the stage memory. All have the same history, with MiB instead of bytes."""
    history = made_up_history()
    # `mib and`: without a GPU, some counters are None
    counter_bytes = {name: mib and mib * MIB for name, mib in (counters_mib or history.counters).items()}
    history = replace(history, size_bytes=history.size_bytes * MIB, counters=counter_bytes)
    tables, of_runs = merged(runs), {}
    for run in runs:
        for name, table in tables_of_history(history)[1].items():
            of_runs.setdefault(name, []).append(table.assign(**run.leading)[[*run.leading, *table.columns]])
    memory_tables = {name: pd.concat(of_name, ignore_index=True) for name, of_name in of_runs.items()}
    runs_table = tables["runs"].assign(memory_status="complete", device_total_bytes=140 * GIB, parameters=1)
    return tables | memory_tables | {"runs": runs_table}


def training(**changes) -> Made:
    return Made(mode="train_step", **changes)


def answered(tables: dict[str, pd.DataFrame]) -> str:
    return document_of("i_memory", tables)


def test_the_question_is_asked_where_a_run_was_asked_for_its_memory_and_nowhere_else():
    assert "i_memory" not in document_names(merged([training()])["runs"])
    assert "i_memory" in document_names(recorded([training()])["runs"])


def test_the_fullest_moment_is_shown_by_category_with_its_phase():
    peaks = summary_tables(recorded([training()]), ["memory_peak"])["memory_peak"].set_index("category")
    assert peaks.loc["activations", "bytes"] == 50 * MIB and peaks["peak_bytes"].unique().tolist() == [518 * MIB]
    assert peaks["share"].sum() == pytest.approx(1) and set(peaks["fullest_phase"]) == {"backward"}
    text = answered(recorded([training()]))
    assert "needs 518 MiB at its peak, 38.6 % of it optimizer state." in text
    cells = [cell.strip() for cell in line_of(text, "small", "512", "training step", "backward").split("|")]
    assert cells[4:7] == ["backward", "518 MiB", "100 MiB"]


def test_the_parts_that_keep_the_most_are_named_with_their_share():
    text = answered(recorded([training()]))
    assert "the largest part of it (60.0 %) is computing softmax" in text
    assert "| computing softmax | 30.0 MiB (60.0 %) |" in text and "| head " in text


def test_two_runs_that_differ_in_what_a_table_does_not_show_stand_in_tables_of_their_own():
    text = answered(recorded([training(), training(precision="bf16")]))
    assert "in brackets its share, precision fp32:" in text and "in brackets its share, precision bf16:" in text


def test_what_the_allocator_gave_out_and_held_stands_beside_what_was_asked_for():
    text = answered(recorded([training()]))
    assert (
        "gives out 1.10 times the requested memory, and reserves 2.00 times as much; the driver shows 3.00 times"
        in text
    )
    assert [cell.strip() for cell in line_of(text, "small", "512", "training step", "600 MiB").split("|")][4:8] == [
        "600 MiB",
        "660 MiB",
        "1.17 GiB",
        "1.76 GiB",
    ]


def test_on_a_processor_the_document_says_what_cannot_be_told_and_shows_no_empty_columns():
    text = answered(recorded([training()], counters_mib=None))
    assert "Not recorded: " in text and "no snapshot" in text
    assert "reserved |" not in text and "times what was asked" not in text.lower()


def test_a_grid_whose_histories_are_all_broken_says_so():
    tables = merged([training()])
    text = answered(tables | {"runs": tables["runs"].assign(memory_status="incomplete")})
    assert "Not answered: no run whose allocations were to be recorded has a complete history." in text


def out_of_memory(**changes) -> pd.DataFrame:
    """What the stage memory recorded of a run that ran out of memory: two groups of allocations were live."""
    groups = [
        ("activations", "forward", "block > computing softmax", 12, 3000),
        ("parameters", "(outside)", "", 1, 1000),
    ]
    failure = {"requested_bytes": 900 * MIB, "free_bytes": 70 * MIB, "in_phase": "forward", "in_range": "block > norm",
               "live_bytes": 4000 * MIB, "operator": ""}  # fmt: skip
    rows = [
        failure | changes | {"category": category, "phase": phase, "range": path, "allocations": number,
        "each_bytes": mib // number * MIB, "bytes": mib * MIB}
        for category, phase, path, number, mib in groups
    ]  # fmt: skip
    return MEMORY_FAILED.table([training().leading | row for row in rows])


def test_where_memory_runs_out_the_moment_and_what_was_live_then_are_told():
    tables = merged([training()])
    runs = tables["runs"].assign(memory_status="out_of_memory")
    text = answered(tables | {"runs": runs, "memory_failed": out_of_memory()})
    assert (
        "small at context 512, training step, runs out of memory in forward (norm) with 3.9 GiB in use, 75.0 % of it"
        " activations."
    ) in text
    line = [
        cell.strip() for cell in line_of(text, "small", "512", "training step", r"forward \> block \> norm").split("|")
    ]
    assert line[5:10] == ["900 MiB", "70.0 MiB", "3.91 GiB", "2.93 GiB", "1,000 MiB"]
    assert "The largest groups of allocations when memory ran out (small at context 512, training step):" in text
    assert "12 | " in line_of(text, "activations")
    before = answered(tables | {"runs": runs, "memory_failed": out_of_memory(in_phase="(outside)", in_range="")})
    assert "small at context 512, training step, runs out of memory in the setup of model and optimizer with" in before


def test_one_block_stands_with_its_largest_operations():
    tables = recorded([training(), training(checkpoint="4")])
    block = summary_tables(tables, ["memory_block"])["memory_block"].set_index("checkpoint")
    assert block.loc["0", "saved_bytes"] == 30 * MIB
    text = answered(tables)
    assert "Without checkpoints, one block keeps 30 MiB" in text
    assert "| computing softmax | `aten::exp` | `model.py:7` | 30.0 MiB | 100.0 % |" in text


def test_the_types_of_one_run_per_precision_are_shown_by_module():
    text = answered(recorded([Made(), training(), training(precision="bf16")]))
    assert text.count("Types of parameters, outputs and gradients in the first step (") == 2
    assert "in the first step (small at context 512 in fp32, training step):" in text
    cells = [cell.strip() for cell in line_of(text, "`blocks.*.norm`").split("|")]
    assert cells[1:6] == ["`blocks.*.norm`", "1", "float32", "bfloat16", "float32"]
