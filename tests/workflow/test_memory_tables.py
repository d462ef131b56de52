"""The tables of the memory of one run, from histories that a person can follow."""

import gzip
import json

import pandas as pd
import pytest

from cs336_model.results import Memory, write_result
from kernel_tables.errors import NotConserved
from tests.workflow.small_results import make_result
from workflow.scripts import memory_tables
from workflow.scripts.memory_tables import CATEGORIES, MAX_MOMENTS, TABLES, History, make_tables
from workflow.tables import read_table

# "( name" opens a range, ")" closes it, "+name bytes" allocates, "-name" frees.
EVENTS = (
    "+weight 100; +scratch 500; -scratch; +moments 200; +tokens 8; ( measure; ( step; ( forward; ( block; "
    "( computing softmax; +scores 30; +sum 10; -sum; ); ); ( head; "
    "+logits 20; ); ); ( loss; +loss 4; ); ( backward; +products 40; +workspace 16; "
    "+gradient 100; -products; -scores; ); ( optimizer; +root 25; -root; ); -logits; ); )"
)
HELD = {"weight": "parameters", "gradient": "gradients", "moments": "optimizer state", "tokens": "data", "loss": "data"}


def make_record(text: str = EVENTS, held: dict[str, str] = HELD) -> dict:
    """The history that the measured program would write of these events."""
    ranges, around, rows, last, count = [], [], [], {}, 0
    for line in text.split("; "):
        if line.startswith("("):
            ranges.append({"name": line[2:], "inside": around[-1] if around else None, "opened": count, "closed": None})
            around.append(len(ranges) - 1)
        elif line == ")":
            ranges[around.pop()]["closed"] = count
        elif line:
            name, _, size = line[1:].partition(" ")
            if line.startswith("-"):
                last[name]["freed"], last[name]["held"] = count, None
            else:
                last[name] = {"bytes": int(size), "made": count, "freed": None, "held": held.get(name)}
                last[name]["range"] = around[-1] if around else None
                rows.append(last[name])
            count += 1
    names = ("bytes", "made", "freed", "range", "held")
    return {
        "time_us": [float(number) for number in range(count)],
        "allocations": {name: [row[name] for row in rows] for name in names},
        "ranges": {name: [one[name] for one in ranges] for name in ("name", "inside", "opened", "closed")},
    }


def make(text: str = EVENTS, held: dict[str, str] = HELD, peak: int | None = None) -> dict[str, pd.DataFrame]:
    """The tables of these events; `peak` is what the allocator counted, by default the right number."""
    history = History(make_record(text, held))
    result = Memory(status="complete", requested_peak_bytes=peak or int(history.total.max()))
    return make_tables(result, history)


def bytes_by_category(tables: dict[str, pd.DataFrame], phase: str) -> dict[str, int]:
    rows = tables["memory_phases"].query("phase == @phase and bytes > 0")
    return dict(zip(rows["category"], rows["bytes"], strict=True))


def test_every_allocation_has_the_category_that_its_holder_or_its_life_tells():
    assert History(make_record()).allocations["category"].tolist() == [
        "parameters", "temporary", "optimizer state", "data", "activations", "temporary", "activations", "data",
        "temporary", "workspace", "gradients", "temporary",
    ]  # fmt: skip


def test_gradients_of_an_earlier_step_and_what_communication_makes_are_told_by_their_life():
    step = "( step; ( forward; +kept 7; ); ( backward; -kept; +gradient 9; ); )"
    text = f"( measure; {step}; -gradient; {step}; )"
    assert History(make_record(text)).allocations["category"].tolist() == ["activations", "gradients"] * 2
    text = "( measure; ( step; ( forward; ( wait for all-gather; +whole 7; ); ); "
    text += "( backward; ( reduce-scatter; +part 3; +buffer 2; ); -whole; ); ); -part; )"
    made = ["communication", "gradients", "communication"]
    assert History(make_record(text)).allocations["category"].tolist() == made


def test_every_phase_shows_its_fullest_moment_by_category():
    tables = make()
    always = {"parameters": 100, "optimizer state": 200, "data": 8}
    assert bytes_by_category(tables, "forward") == always | {"activations": 50}  # later than the 40 with the sum
    backward = {"data": 12, "activations": 50, "temporary": 40, "workspace": 16, "gradients": 100}
    assert bytes_by_category(tables, "backward") == bytes_by_category(tables, "step") == always | backward
    assert bytes_by_category(tables, "process") == {"parameters": 100, "temporary": 500}  # before any step


def test_what_is_kept_stands_by_part_of_the_model():
    assert make()["memory_activations"].values.tolist() == [["computing softmax", 30, 1], ["head", 20, 1]]


def test_a_timeline_keeps_the_fullest_moment_and_its_categories_sum_to_the_live_bytes():
    lines = "; ".join(f"+a{n} {n}; -a{n}" for n in range(1, 1500))
    table = make(f"( measure; ( step; ( forward; {lines}; ); ); )")["memory_timeline"]
    assert len(table) == MAX_MOMENTS and table["live_bytes"].max() == 1499 and set(table["phase"]) == {"forward"}
    categories = [f"{category.replace(' ', '_')}_bytes" for category in CATEGORIES]
    assert (table[categories].sum(axis=1) == table["live_bytes"]).all()


def test_a_replay_that_does_not_reach_what_the_allocator_counted_gives_no_table():
    with pytest.raises(NotConserved, match="give 600, the allocator counted 700"):
        make(peak=700)


def test_a_run_has_its_tables_beside_its_result_and_one_out_of_memory_has_them_without_rows(tmp_path):
    path = tmp_path / "memory.json"
    write_result(make_result("small", "memory", requested_peak_bytes=600), path)
    (tmp_path / "memory_history.json.gz").write_bytes(gzip.compress(json.dumps(make_record()).encode()))
    memory_tables.main(path)
    assert all(len(read_table(tmp_path / f"{name}.parquet")) == len(pd.read_csv(tmp_path / f"{name}.csv")) > 0
               for name in TABLES)  # fmt: skip
    write_result(make_result("small", "memory", status="out_of_memory", reason="no memory"), path)
    memory_tables.main(path)
    assert all(read_table(tmp_path / f"{name}.parquet").empty for name in TABLES)
