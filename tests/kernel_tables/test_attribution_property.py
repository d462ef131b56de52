"""Random threads, nestings and launches against the rule written out."""

import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_tables.attribution import arrays
from kernel_tables.errors import TraceError
from kernel_tables.trace import Trace
from tests.kernel_tables import brute_force
from tests.kernel_tables.synthetic import PUSH_POP, START_END, Synthetic

LAST_NS = 24  # a short clock, so that ends and starts meet often


@pytest.fixture(autouse=True, scope="module")
def many_blocks():
    """Arrays of more than a few rows are handled as those of millions are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrays, "BLOCK_LENGTH", 5)
        yield


@st.composite
def nested_ranges(draw):
    """Ranges of one thread that nest, as pushes and pops at rising times; some are never popped."""
    times = sorted(draw(st.lists(st.integers(0, LAST_NS), max_size=10)))
    opened, closed = [], []
    for time in times:
        if opened and draw(st.booleans()):
            closed.append((*opened.pop(), time))
        else:
            opened.append((draw(st.sampled_from("abc")), time))
    still_open = draw(st.sampled_from([None, LAST_NS]))
    return [*closed, *((name, start, still_open) for name, start in opened)]


@st.composite
def any_ranges(draw):
    """Ranges that may overlap without nesting, as start/end ranges do."""
    pair = st.tuples(st.integers(0, LAST_NS), st.integers(0, LAST_NS)).map(sorted)
    return [(draw(st.sampled_from("abc")), *bounds) for bounds in draw(st.lists(pair, max_size=6))]


@st.composite
def captures(draw):
    capture = Synthetic()
    for process in range(1, draw(st.integers(1, 2)) + 1):
        for thread in range(1, draw(st.integers(1, 4)) + 1):
            nests = draw(st.booleans())
            for name, start, end in draw(nested_ranges() if nests else any_ranges()):
                kind = PUSH_POP if nests else START_END
                capture.range(name, start, end, thread, process, kind, registered=draw(st.booleans()))
    kinds = st.sampled_from(["kernel", "memcpy", "memset", "graph"])
    launch = st.tuples(kinds, st.none() | st.integers(0, LAST_NS), st.integers(1, 5), st.integers(1, 2))
    for number, (kind, at, thread, process) in enumerate(draw(st.lists(launch, max_size=12))):
        add = getattr(capture, kind)
        labels = ("k",) if kind == "kernel" else (1,) if kind == "graph" else ()
        node = {} if kind == "graph" else {"node": draw(st.none() | st.integers(1, 6))}
        add(
            *labels, at, start=draw(st.integers(0, 40)), thread=thread, process=process, correlation=number // 2, **node
        )
    for number in range(1, draw(st.integers(0, 5)) + 1):
        at, thread = draw(st.tuples(st.integers(-1, LAST_NS), st.integers(1, 4)))
        original = draw(st.none() | st.integers(0, number - 1))  # the creation of 0 was not recorded
        if original is None or draw(st.booleans()):
            capture.node(number, at, thread)
        if original is not None:
            capture.node(number, at, thread, original=original)
    for _ in range(draw(st.integers(0, 2)) if capture.rows["CUDA_GRAPH_NODE_EVENTS"] else 0):
        capture.stream_capture(*sorted(draw(st.tuples(st.integers(0, LAST_NS), st.integers(0, LAST_NS)))))
    for rows in capture.rows.values():  # no row order is promised
        if draw(st.booleans()):
            rows.reverse()
    return capture


@given(captures())
@settings(max_examples=400, deadline=None)
def test_every_activity_has_the_path_that_the_rule_gives_it(capture):
    with tempfile.TemporaryDirectory() as folder:
        path = capture.write(Path(folder) / "capture.sqlite")
        with Trace(path) as trace:
            activities = trace.activities()
            found = [trace.paths[path_id] for path_id in activities["path_id"]]
            instances = trace.range_instances()
            enclosing = {name: trace.enclosing(name).tolist() for name in "abc"}
        expected, at_launch = brute_force.chains(path), brute_force.chains(path, replays=False)
    assert found == [
        ("(launched before the capture)",) if chain is None else tuple(r.name for r in chain) for _, chain in expected
    ]
    key = ["start_ns", "end_ns", "thread", "name"]
    identity = list(instances[key].itertuples(index=False, name=None))
    for name, outermost in enclosing.items():
        for instance, (_, chain) in zip(outermost, at_launch, strict=True):
            named = [r for r in chain or () if r.name == name]
            if not named:
                assert instance == -1
            else:
                assert identity[instance] == (named[0].start, named[0].end, named[0].thread, name)


@pytest.mark.parametrize("seed", range(4))
def test_hundreds_of_overlapping_ranges_on_several_threads_give_every_launch_what_the_rule_gives_it(seed, tmp_path):
    chosen = random.Random(seed)
    capture = Synthetic()
    for number in range(300):
        start = chosen.randrange(2000)
        lasts = chosen.choice([0, 5, 50, 2000])  # momentary, overlapping its neighbours, long, to the end
        thread = chosen.choice([1, 1, 1, 2, 3])
        capture.range(f"range {number}", start, min(start + lasts, 2000), thread, kind=START_END)
    for _ in range(300):
        capture.kernel("k", at=chosen.randrange(2100), thread=chosen.randrange(1, 5))
    path = capture.write(tmp_path / "capture.sqlite")
    with Trace(path) as trace:
        found = [trace.paths[path_id] for path_id in trace.activities()["path_id"]]
    assert found == brute_force.paths(path)
    assert max(map(len, found)) > 20


@given(captures(), st.sampled_from([None, "a"]))
@settings(max_examples=200, deadline=None)
def test_inclusive_times_by_range_are_the_brute_force_sums(capture, under):
    with tempfile.TemporaryDirectory() as folder:
        path = capture.write(Path(folder) / "capture.sqlite")
        with Trace(path) as trace:
            if under is not None and under not in set(trace.range_instances()["name"]):
                with pytest.raises(TraceError, match="no range is named 'a'"):
                    trace.ranges(under)
                return
            table = trace.ranges(under)
        expected = brute_force.ranges_table(path, under)
    graphs = len(capture.rows["CUPTI_ACTIVITY_KIND_GRAPH_TRACE"])
    if graphs == 0:
        counted = table[(table["kernels"] > 0) & ~table["range"].str.startswith("(")]
        found = {row.range: (row.kernels, row.gpu_time_ns) for row in counted.itertuples()}
        assert found == expected
