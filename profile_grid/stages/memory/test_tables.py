"""Categories, fullest moments and what is kept, from histories that a person can follow."""

import gzip
import json
import random
from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest

from profile_grid.results.capture_identity import file_identity
from profile_grid.stages.memory.history import CATEGORIES, categories_of, category_names, history_of, live_bytes
from profile_grid.stages.memory.tables import TABLES, blocks_table, failure_table, run_tables, tables_of_history
from profile_grid.stages.memory.usage_tables import (
    MAX_GROUPS,
    MAX_MOMENTS,
    fullest_state,
    largest_table,
    timeline_table,
)
from tests.default_values import DEFAULT_VALUES
from tests.profile_grid.made_up_history import EVENTS, made_up_history, made_up_record
from tests.profile_grid.made_up_results import as_written


def made_up_tables(peak: int = 600) -> tuple[dict, dict[str, pd.DataFrame]]:
    """The status and tables of the made-up history, if the allocator counted this peak."""
    history = made_up_history()
    return tables_of_history(replace(history, counters=history.counters | {"requested_peak": peak}))


def bytes_by_category(memory_phases: pd.DataFrame, phase: str) -> dict[str, int]:
    rows = memory_phases[(memory_phases["phase"] == phase) & (memory_phases["bytes"] > 0)]
    return dict(zip(rows["category"], rows["bytes"], strict=True))


def test_every_allocation_has_the_category_that_its_holder_or_its_life_tells():
    history = made_up_history()
    categories = [CATEGORIES[number] for number in categories_of(history)]
    assert categories == [
        "parameters", "temporary", "optimizer state", "data", "activations", "temporary", "activations", "data",
        "temporary", "workspace", "gradients", "temporary",
    ]  # fmt: skip


def test_every_phase_shows_its_fullest_moment_by_category():
    status, tables = made_up_tables()
    assert status["status"] == "complete"
    phases = tables["memory_phases"]
    always = {"parameters": 100, "optimizer state": 200, "data": 8}
    assert bytes_by_category(phases, "forward") == always | {"activations": 50}  # later than the 40 with the sum
    backward = {"data": 12, "activations": 50, "temporary": 40, "workspace": 16, "gradients": 100}
    assert bytes_by_category(phases, "backward") == bytes_by_category(phases, "step") == always | backward
    assert bytes_by_category(phases, "process") == {"parameters": 100, "temporary": 500}  # before there is any step


# In these texts, "( name" opens a range and ")" closes it; "+name bytes" allocates and "-name" frees.
TWO_STEPS = """
( measure
( step
( forward
+kept 7
)
( backward
+gradient 9
-kept
)
)
-gradient
( step
( forward
+kept 7
)
( backward
+gradient 9
-kept
)
)
)
"""


def test_the_gradients_of_a_step_that_is_not_the_last_are_told_by_their_life():
    history = made_up_history(TWO_STEPS)
    assert history.holder == [None, None, None, "gradients"]
    categories = [str(CATEGORIES[number]) for number in categories_of(history)]
    assert categories == ["activations", "gradients", "activations", "gradients"]


def test_a_replay_that_does_not_reach_what_the_allocator_counted_gives_no_figures():
    status, tables = made_up_tables(peak=700)
    assert status["status"] == "incomplete"
    assert status["reason"].startswith("the replay of its allocations reaches 600 bytes, the allocator counted 700")
    assert all(table.empty for table in tables.values())


def test_what_is_kept_stands_by_part_and_block():
    kept = made_up_tables()[1]["memory_activations"]
    assert kept.values.tolist() == [
        ["computing softmax", 0, "aten::exp", "model.py:7", 30, 1], ["head", -1, "aten::mm", "", 20, 1],
    ]  # fmt: skip


def test_the_largest_allocations_at_the_peak_are_told_with_range_and_operator_and_the_rest_by_category():
    history = made_up_history()
    backward = next(span for span in history.ranges if span.name == "backward")
    categories = categories_of(history)
    state = fullest_state(live_bytes(history, categories), backward.first_event, backward.event_after)
    table = largest_table(history, category_names(categories), state)
    first = table.iloc[0].tolist()
    assert first == ["optimizer state", "(outside)", "", "", "", 200, 1, 200]
    scores = table[table["operator"] == "aten::exp"].iloc[0]
    assert (scores["phase"], scores["range"]) == ("forward", "block > computing softmax")
    assert table["bytes"].sum() == 518


def test_more_groups_than_are_shown_are_summed_by_category_and_no_byte_is_lost():
    lines = "".join(f"+one{size} {size}\n" for size in range(1, MAX_GROUPS + 11))
    history = made_up_history(f"( measure\n( step\n( forward\n{lines})\n)\n)\n")
    table = largest_table(history, category_names(categories_of(history)), history.event_count - 1)
    assert len(table) == MAX_GROUPS + 1 and table["range"].iloc[-1] == "(smaller ones)"
    assert table["operator"].iloc[-1] == table["line"].iloc[-1] == ""
    assert table["allocations"].iloc[-1] == 10 and table["bytes"].sum() == sum(range(1, MAX_GROUPS + 11))


def test_a_timeline_keeps_the_fullest_moment_however_many_there_are():
    lines = "".join(f"+a{n} {n}\n-a{n}\n" for n in range(1, 1500))
    history = made_up_history(f"( measure\n( step\n( forward\n{lines})\n)\n)\n")
    live = live_bytes(history, categories_of(history))
    table = timeline_table(history, live)
    assert len(table) == MAX_MOMENTS and table["live_bytes"].max() == 1499
    assert (
        table[[name for name in table if name.endswith("_bytes") and name != "live_bytes"]].sum(axis=1)
        == table["live_bytes"]
    ).all()
    assert table["moment"].is_monotonic_increasing and table["phase"].iloc[-1] == "forward"


@pytest.mark.parametrize("seed", range(4))
def test_live_bytes_and_fullest_moments_are_those_of_a_walk_over_the_events(seed):
    generator, lines = random.Random(seed), ["( measure", "( step", "( forward"]
    live_sizes, expected_bytes = {}, []
    for number in range(120):
        if live_sizes and generator.random() < 0.45:
            name = generator.choice(list(live_sizes))
            live_sizes.pop(name)
            lines.append(f"-{name}")
        else:
            live_sizes[f"t{number}"] = generator.randrange(1, 1000)
            lines.append(f"+t{number} {live_sizes[f't{number}']}")
        expected_bytes.append(sum(live_sizes.values()))
    history = made_up_history("\n".join([*lines, ")", ")", ")"]))
    live = live_bytes(history, categories_of(history))
    assert live.sum(axis=1).tolist() == expected_bytes
    begin, end = sorted(generator.sample(range(1, 120), 2))
    state = fullest_state(live, begin, end)
    assert expected_bytes[state] == max(expected_bytes[begin - 1 : end])


FAILED_IN_BACKWARD = """
+weight 100
( warmup
( step
( forward
+kernel_workspace 16
+first 60
-first
)
)
)
( measure
( step
( forward
( block
+scores 60 aten::exp
)
)
( backward
+products 40 aten::mm
-products
-scores
)
)
)
"""


def failed_record(text: str, event: int, range_number: int | None, held: dict[str, str]) -> dict:
    """The record of a process in which a request of 500 bytes, in this range, fails after `event` events."""
    unmet = {"event": event, "requested_bytes": 500, "free_bytes": 30, "range": range_number}
    record = made_up_record(text, held)
    live_sums = [0]
    for number in range(len(record["time_us"])):
        made, freed = (record["allocations"][name] for name in ("made", "freed"))
        change = sum(size for size, at in zip(record["allocations"]["bytes"], made, strict=True) if at == number)
        change -= sum(size for size, at in zip(record["allocations"]["bytes"], freed, strict=True) if at == number)
        live_sums.append(live_sums[-1] + change)
    return record | {"unmet": unmet, "counters": record["counters"] | {"requested_peak": max(live_sums)}}


def test_where_memory_runs_out_what_was_live_then_is_told_and_not_what_the_error_freed():
    history = history_of(failed_record(FAILED_IN_BACKWARD, 6, 7, {"weight": "parameters"}))
    assert history.ranges[7].name == "backward"
    table = failure_table(history, has_backward=True).set_index("category")
    assert table["bytes"].to_dict() == {"parameters": 100, "activations": 60, "temporary": 40, "workspace": 16}
    assert table.loc["activations", ["phase", "range", "operator"]].tolist() == ["forward", "block", "aten::exp"]
    moment = ["requested_bytes", "free_bytes", "in_phase", "in_range", "live_bytes"]
    assert table[moment].drop_duplicates().values.tolist() == [[500, 30, "backward", "", 216]]
    assert "activations" not in set(failure_table(history, has_backward=False)["category"])


def test_memory_that_runs_out_before_there_is_a_model_is_full_of_what_was_being_made():
    table = failure_table(
        history_of(failed_record("+weight 100\n+other 300\n-other\n-weight\n", 2, None, {})), has_backward=True
    )
    assert table[["category", "in_phase", "bytes"]].values.tolist() == [
        ["being made", "(outside)", 300], ["being made", "(outside)", 100],
    ]  # fmt: skip


def test_a_run_that_runs_out_of_memory_tells_of_that_alone_and_a_broken_history_of_nothing(tmp_path):
    record = failed_record(FAILED_IN_BACKWARD, 6, 7, {"weight": "parameters"})
    result = result_of(tmp_path, gzip.compress(json.dumps(record).encode()), "out_of_memory")
    status, tables = run_tables(result, tmp_path)
    assert status["status"] == "out_of_memory" and len(tables["memory_failed"]) == 4
    assert list(tables) == ["memory_failed"]
    record["counters"]["requested_peak"] += 1
    result = result_of(tmp_path, gzip.compress(json.dumps(record).encode()), "out_of_memory")
    assert run_tables(result, tmp_path)[1] == {}


def result_of(folder, content: bytes, status: str = "complete") -> SimpleNamespace:
    """The result of the stage memory, whose history has this content in the folder."""
    name = "memory_history.json.gz"
    (folder / name).write_bytes(content)
    files = {name: SimpleNamespace(**file_identity(folder / name))}
    program = SimpleNamespace(spec={"dimensions": {"mode": "train_step", **DEFAULT_VALUES}})
    return SimpleNamespace(status=status, reason="no memory", files=files, program=program, specification={}, facts={})


def test_the_tables_of_a_run_come_from_its_own_file_and_from_no_other(tmp_path):
    result = result_of(tmp_path, gzip.compress(json.dumps(made_up_record()).encode()))
    status, tables = run_tables(result, tmp_path)
    assert status["status"] == "complete" and len(tables["memory_totals"]) == 1
    (tmp_path / "memory_history.json.gz").write_bytes(gzip.compress(b"null"))
    status, tables = run_tables(result, tmp_path)
    assert status["status"] == "incomplete" and "it is not the history of this run" in status["reason"]
    assert tables == {}


def test_a_run_without_a_history_has_no_tables_and_tables_have_the_declared_dtypes(tmp_path):
    result = result_of(tmp_path, gzip.compress(b"null"), status="out_of_memory")
    status, tables = run_tables(result, tmp_path)
    assert (status["status"], status["reason"], tables) == ("out_of_memory", "no memory", {})
    for name, table in made_up_tables()[1].items():
        (declared,) = (declared for declared in TABLES if declared.name == name)
        assert as_written(table) == as_written(declared.empty()), name


def test_moments_have_what_is_live_then_and_at_the_fullest_moment_since_the_one_before():
    table = made_up_tables()[1]["memory_moments"].set_index(["moment", "category"])
    at_moment, at_peak = table["bytes"], table["peak_bytes"]
    assert at_moment["initialised"].sum() == 308 and at_peak["initialised"].sum() == 600  # a scratch of 500 is gone
    assert (at_moment["before the optimizer", "activations"], at_peak["before the optimizer", "activations"]) == (
        20,
        50,
    )
    assert at_moment["before the optimizer", "gradients"] == at_moment["after the optimizer", "gradients"] == 100
    assert at_peak["after the optimizer", "temporary"] == 25 and at_moment["after the optimizer", "temporary"] == 0


def test_of_several_ranks_every_one_has_its_moments_and_the_first_all_other_tables(tmp_path):
    result = result_of(tmp_path, gzip.compress(json.dumps(made_up_record()).encode()))
    other = tmp_path / "memory_history_rank1.json.gz"
    other.write_bytes(gzip.compress(json.dumps(made_up_record(EVENTS.replace("moments 200", "moments 100"))).encode()))
    result.files[other.name] = SimpleNamespace(**file_identity(other))
    result.facts["ranks"] = [{"rank": 0}, {"rank": 1}]
    status, tables = run_tables(result, tmp_path)
    assert status["status"] == "complete" and len(tables["memory_totals"]) == 1
    state = tables["memory_moments"].query("category == 'optimizer state' and moment == 'initialised'")
    assert state[["rank", "bytes"]].values.tolist() == [[0, 200], [1, 100]]
    other.unlink()
    status, tables = run_tables(result, tmp_path)
    assert (status["status"], tables) == ("incomplete", {})


def test_what_a_range_of_communication_makes_is_communication_unless_it_becomes_a_gradient():
    text = """
( measure
( step
( forward
( wait for all-gather
+gathered 7
)
)
( backward
( reduce-scatter
+part 3
)
-gathered
)
)
-part
)
"""
    categories = [str(CATEGORIES[number]) for number in categories_of(made_up_history(text))]
    assert categories == ["communication", "gradients"]


TWO_BLOCKS = """
( measure
( step
( forward
( block
( residual
+first 30 aten::add model.py:3
)
)
( block
( residual
+second 50 aten::add model.py:3
)
)
)
( backward
( block
+gradient_of_second 7 aten::mm
-second
)
( block
+gradient_of_first 9 aten::mm
-first
)
)
)
)
"""


def test_each_block_has_what_it_kept_its_gradients_and_the_change_in_its_backward_pass():
    held = {"gradient_of_first": "gradients", "gradient_of_second": "gradients"}
    history = history_of(made_up_record(TWO_BLOCKS, held))
    categories = categories_of(history)
    table = blocks_table(history, categories, live_bytes(history, categories))
    assert table.values.tolist() == [[0, 30, 9, 9 - 30, 30], [1, 50, 7, 7 - 50, 50]]


def test_ranges_of_a_recomputed_block_are_split_so_its_change_is_not_known():
    again = "+gradient_of_second 7 aten::mm\n"
    text = TWO_BLOCKS.replace(again, f")\n( recomputation\n( block\n+again 5\n-again\n)\n)\n( block\n{again}")
    history = history_of(made_up_record(text, {}))
    categories = categories_of(history)
    table = blocks_table(history, categories, live_bytes(history, categories))
    assert table["saved_bytes"].tolist() == [30, 50]
    assert table[["gradient_bytes", "backward_change_bytes"]].isna().all(axis=None)
