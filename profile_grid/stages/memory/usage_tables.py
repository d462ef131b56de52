"""The tables of the memory of one run: its peaks, activations, largest allocations, and the timeline of a step."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from cs336_model import ranges
from kernel_tables.attribution.path_text import as_path
from profile_grid.stages.memory.history import CATEGORIES, AllocationHistory, Category
from profile_grid.study.table_spec import TableSpec, columns
from profile_grid.tables.names import NO_RANGE, OPTIMIZER, OUTSIDE, STEP, WHOLE_STEP

WHOLE_PROCESS, NO_STEP = "process", -1  # phase and step of a row on the entire process
NO_BLOCK = -1  # instead of the number of a block, for what is in none
INITIALISED, BEFORE_OPTIMIZER, AFTER_OPTIMIZER = "initialised", "before the optimizer", "after the optimizer"
MAX_MOMENTS = 400  # of a timeline
MAX_GROUPS = 20  # of allocations with a row of their own
SMALLER_GROUPS = "(smaller ones)"
CATEGORY_COLUMNS = {name: f"{name.replace(' ', '_')}_bytes" for name in CATEGORIES}  # in memory_timeline
KEY_COLUMNS = ["category", "phase", "range", "operator", "line", "each_bytes"]  # of a group of allocations


def phases_table(history: AllocationHistory, live: np.ndarray) -> pd.DataFrame:
    """One row per category for every phase of a measured step and for the entire step, each at its fullest moment; then
    the same for the process."""
    rows = []
    for number, step in enumerate(history.measured_steps()):
        for name, span in ((WHOLE_STEP, history.ranges[step]), *history.phases_of(step)):
            rows += _rows_at(live, fullest_state(live, span.first_event, span.event_after), number, name)
    rows += _rows_at(live, int(live.sum(axis=1).argmax()), NO_STEP, WHOLE_PROCESS) if len(live) else []
    return pd.DataFrame(rows, columns=MEMORY_PHASES.names)


def moments_table(history: AllocationHistory, live: np.ndarray) -> pd.DataFrame:
    """One row per category for each of these moments: before the first step, when model and optimizer are made; and
    before and after the optimizer in the last measured step. `peak_bytes` is at the fullest moment since the beginning
    of the process, of the step or of the optimizer."""
    step = history.measured_steps()[-1]
    first_step = next(span for span in history.ranges if span.name == STEP)
    events_until = {INITIALISED: (0, first_step.first_event)}  # (first, end) of the events that lead to each moment
    if optimizer := dict(history.phases_of(step)).get(OPTIMIZER):
        events_until[BEFORE_OPTIMIZER] = (history.ranges[step].first_event, optimizer.first_event)
        events_until[AFTER_OPTIMIZER] = (optimizer.first_event, optimizer.event_after)
    rows = []
    for moment, (first_event, end_event) in events_until.items():
        at_moment, at_peak = live[end_event - 1], live[fullest_state(live, first_event, end_event)]
        rows += [(moment, str(name), int(at_moment[i]), int(at_peak[i])) for i, name in enumerate(CATEGORIES)]
    return pd.DataFrame(rows, columns=["moment", "category", "bytes", "peak_bytes"])


def fullest_state(live: np.ndarray, first_event: int, end_event: int) -> int:
    """The first state in which most bytes are live, from the state before `first_event` to that before `end_event`."""
    first = max(first_event - 1, 0)
    return first + int(live[first : max(end_event, first + 1)].sum(axis=1).argmax())


def _rows_at(live: np.ndarray, state: int, step: int, phase: str) -> list[tuple]:
    """The rows of `phases_table` for what is live in this state, one per category."""
    return [(step, phase, str(name), int(live[state, index])) for index, name in enumerate(CATEGORIES)]


def activations_table(history: AllocationHistory, categories: np.ndarray) -> pd.DataFrame:
    """What the last measured step keeps for its backward pass: one row per part, block, operator and line."""
    step = history.measured_steps()[-1]
    blocks, rows = block_by_range(history, step, ranges.FORWARD), []
    for allocation in np.flatnonzero(categories == CATEGORIES.index(Category.ACTIVATIONS)):
        number = history.range_number[allocation]
        if step in history.path(number):
            operator, line = history.operator[allocation] or "", history.line[allocation] or ""
            part, block = _part(history, number), block_of(history, number, blocks)
            rows.append((part, block, operator, line, history.size_bytes[allocation]))
    keys = MEMORY_ACTIVATIONS.names[:4]
    table = pd.DataFrame(rows, columns=[*keys, "size"])
    return table.groupby(keys, sort=False)["size"].agg(bytes="sum", allocations="count").reset_index()


def block_by_range(history: AllocationHistory, step: int, phase: str) -> dict[int, int]:
    """{number of a range: its block} for the ranges of blocks in one phase of a step. Blocks are counted from 0 in the
    order in which they open. Ranges that compute a block again are left out."""
    blocks: dict[int, int] = {}
    for number, span in enumerate(history.ranges):
        if span.name == ranges.BLOCK and step in history.path(number):
            names = history.names(number)
            if phase in names and ranges.RECOMPUTATION not in names:
                blocks[number] = len(blocks)
    return blocks


def block_of(history: AllocationHistory, number: int, blocks: dict[int, int]) -> int:
    """The block that contains the range with this number; NO_BLOCK if none does. `blocks` is from `block_by_range`."""
    return next((blocks[outer] for outer in history.path(number) if outer in blocks), NO_BLOCK)


def _part(history: AllocationHistory, number: int) -> str:
    """The name of the range with this number; NO_RANGE if it is not inside a phase."""
    phase_and_inner_names = history.names_in_step(number)
    return phase_and_inner_names[-1] if len(phase_and_inner_names) > 1 else NO_RANGE


def largest_table(history: AllocationHistory, category_by_allocation: Sequence[str], state: int) -> pd.DataFrame:
    """The largest groups of live allocations, equal in KEY_COLUMNS, in a state; smaller ones as a row per category."""
    rows = []
    for allocation in np.flatnonzero(history.live_at(state)):
        phase, path = phase_and_range(history, history.range_number[allocation])
        operator, line = history.operator[allocation] or "", history.line[allocation] or ""
        category, size_bytes = str(category_by_allocation[allocation]), int(history.size_bytes[allocation])
        rows.append((category, phase, path, operator, line, size_bytes))
    table = pd.DataFrame(rows, columns=KEY_COLUMNS)
    table = table.groupby(KEY_COLUMNS, sort=False, dropna=False).size().reset_index(name="allocations")
    table = table.assign(bytes=table["each_bytes"] * table["allocations"])
    table = table.sort_values(["bytes", "each_bytes"], ascending=False, kind="stable", ignore_index=True)
    smaller = table.iloc[MAX_GROUPS:].groupby("category", sort=False)[["allocations", "bytes"]].sum().reset_index()
    smaller = smaller.assign(phase="", range=SMALLER_GROUPS, operator="", line="", each_bytes=pd.NA)
    groups = [_typed(rows) for rows in (table.iloc[:MAX_GROUPS], smaller) if len(rows)]
    return pd.concat(groups or [_typed(table)], ignore_index=True)


def phase_and_range(history: AllocationHistory, number: int) -> tuple[str, str]:
    """(phase, path inside the phase) of the range with this number; (OUTSIDE, "") if it is in no phase."""
    names = history.names_in_step(number)
    return names[0] if names else OUTSIDE, as_path(names[1:])


def timeline_table(history: AllocationHistory, live: np.ndarray) -> pd.DataFrame:
    """The last measured step in at most MAX_MOMENTS moments, each the fullest of its slice of the events."""
    number = history.measured_steps()[-1]
    step, phases, total = history.ranges[number], list(history.phases_of(number)), live.sum(axis=1)
    states = np.arange(max(step.first_event - 1, 0), step.event_after)
    rows = []
    for moment, slice_states in enumerate(np.array_split(states, min(MAX_MOMENTS, len(states)))):
        state = slice_states[total[slice_states].argmax()]
        since_ms = (history.time_us[state] - history.time_us[states[0]]) / 1e3
        phase = next((name for name, span in phases if span.first_event <= state < span.event_after), OUTSIDE)
        rows.append((moment, since_ms, phase, *live[state].tolist(), int(total[state])))
    return pd.DataFrame(rows, columns=MEMORY_TIMELINE.names)


def _typed(groups: pd.DataFrame) -> pd.DataFrame:
    """The groups with the dtypes of MEMORY_LARGEST, but integers where no value is missing (`each_bytes` may be)."""
    return MEMORY_LARGEST.typed(groups[MEMORY_LARGEST.names]).astype({"allocations": "int64", "bytes": "int64"})


CATEGORY_MEANINGS = (
    "parameters, gradients, optimizer state, activations (made before the backward pass, live when it begins),"
    " temporary, communication (its buffers), workspace (never freed, and not a tensor of the step), data (tokens,"
    " buffers, losses)"
)
MEMORY_PHASES = TableSpec(
    "memory_phases",
    "One row per run with the stage memory, measured step, phase and category, at the peak of the phase",
    columns(f"""
    step | int | | number of the measured step, from 0; −1 for the entire process
    phase | text | | step, one phase of it, or process: from before the model is made to the end of the last step
    category | text | | {CATEGORY_MEANINGS}
    bytes | int | B | requested by live allocations of the category; the categories of a phase add up to its peak
"""),
)
MEMORY_MOMENTS = TableSpec(
    "memory_moments",
    "One row per run with the stage memory, rank, moment and category",
    columns(f"""
    rank | int | | number of the process, from 0
    moment | text | | {INITIALISED} (before the first step), or {BEFORE_OPTIMIZER} and {AFTER_OPTIMIZER} of the last \
        measured step
    category | text | | as in memory_phases
    bytes | int | B | requested by live allocations of the category at this moment
    peak_bytes | int | B | the same at the peak since the previous moment: of initialisation, of forward and \
        backward pass, of the optimizer
"""),
)
MEMORY_ACTIVATIONS = TableSpec(
    "memory_activations",
    "One row per run with a backward pass, part, block, operator and line: what the last measured step keeps for it",
    columns("""
    part | text | | innermost range in which it was allocated
    block | int | | number of the block, from 0; −1 outside of all
    operator | text | | ATen operator that allocated; empty if unknown
    line | text | | innermost line of Python outside of PyTorch that called it, as file:line; empty if unknown
    bytes | int | B | requested by allocations of the forward pass and loss that are live when the backward pass begins
    allocations | int | | number of these allocations
"""),
)
MEMORY_LARGEST = TableSpec(
    "memory_largest",
    "The largest groups of allocations in use at the peak of the last step, equal in all but their block",
    columns("""
    category | text | | as in memory_phases
    phase | text | | phase in which they were made; (outside) of all steps
    range | text | | ranges inside the phase, outermost first, joined by " > "; (smaller ones): the others of a category
    operator | text | | ATen operator that allocated; empty for the smaller ones, whose operators differ, for what is \
        allocated outside of operators, and in recordings without operators
    line | text | | innermost line of Python outside of PyTorch that called it, as file:line; empty if unknown
    each_bytes | int | B | size of one
    allocations | int | | number of allocations
    bytes | int | B | of all of them
"""),
)
MEMORY_TIMELINE = TableSpec(
    "memory_timeline",
    "At most 400 moments of the last measured step of a run, each the peak of its slice of the events",
    columns(
        "moment | int | | number, in order\n ms | float | ms | since the step began, with the recorder on\n"
        "phase | text | | the phase that was open\n"
        + "\n".join(f"{CATEGORY_COLUMNS[name]} | int | B | live bytes: {name}" for name in CATEGORIES)
        + "\n live_bytes | int | B | live bytes of all categories"
    ),
)
MEMORY_TOTALS = TableSpec(
    "memory_totals",
    "One row per run with the stage memory: numbers of the allocator and the driver",
    columns("""
    requested_peak_bytes | int | B | peak of requested bytes; the replay of all allocations gives the same
    allocated_peak_bytes | int | B | peak of bytes given out by the allocator, in blocks
    reserved_peak_bytes | int | B | peak of bytes that the allocator held of the device
    driver_used_bytes | int | B | memory of the device in use after the last step by all processes, from the driver
    events | int | | allocations and releases
    not_seen | text | | what this kind of recording cannot see
"""),
)
TABLES = (MEMORY_PHASES, MEMORY_MOMENTS, MEMORY_ACTIVATIONS, MEMORY_LARGEST, MEMORY_TIMELINE, MEMORY_TOTALS)
