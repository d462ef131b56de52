"""The files of `trace` by the rules of Chrome's Trace Event Format and of Perfetto's importer, by a checker that has
none of the code that writes them.

Perfetto drops a complete event that overlaps another one of its thread without nesting, one with a negative duration,
and an arrow that does not begin and end in slices.
"""

import json
from collections import defaultdict
from decimal import Decimal
from pathlib import Path

import pytest

from kernel_tables.__main__ import main
from tests.kernel_tables.synthetic import Synthetic
from tests.kernel_tables.torch_formats import STYLES, write_trace

CAPTURES = Path(__file__).parents[1] / "captures"
CHECKED_IN = ("host_2025.3.1", "graph_replayed_2025.3.2", "nccl_2025.3.1", "tiny_2022.4.2", "planted/idle_copy")
NUMBERS = (int, Decimal)


def faults(text: str) -> list[str]:
    """What a viewer would not show as it is meant, a line each. Times are exact decimals."""
    found = []

    def no_constant(name):
        found.append(f"{name} is no JSON")

    events = json.loads(text, parse_float=Decimal, parse_constant=no_constant)["traceEvents"]
    tracks, arrows, named = defaultdict(list), defaultdict(list), defaultdict(set)
    for event in events:
        kind = event["ph"]
        if kind not in "XMsf":
            found.append(f"a phase {kind!r}")
            continue
        if not (isinstance(event["name"], str) and isinstance(event["pid"], int) and isinstance(event["tid"], int)):
            found.append(f"name or track of the wrong type: {event}")
        if not (0 <= event["pid"] < 1 << 31 and 0 <= event["tid"] < 1 << 31):
            found.append(f"a track beyond 32 bits: {event}")
        if kind == "M":
            named[event["name"]].add((event["pid"], event["tid"]))
            continue
        if not isinstance(event["ts"], NUMBERS) or event["ts"] < 0:
            found.append(f"no time: {event}")
        if kind == "X":
            if not isinstance(event["dur"], NUMBERS) or event["dur"] < 0:
                found.append(f"no duration: {event}")
            tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
        else:
            arrows[event["cat"], event["id"]].append((kind, (event["pid"], event["tid"]), event["ts"]))
    found += [f"metadata of an unknown kind: {name}" for name in named.keys() - {"process_name", "thread_name"}]
    found += [f"a track without a name: {track}" for track in tracks.keys() - named["thread_name"]]
    processes = {pid for pid, _ in named["process_name"]}
    found += [f"a process without a name: {pid}" for pid in {pid for pid, _ in tracks} - processes]
    for track, slices in tracks.items():
        found += _overlaps(track, slices)
    for arrow, ends in arrows.items():
        if sorted(kind for kind, *_ in ends) != ["f", "s"]:
            found.append(f"arrow {arrow} has {len(ends)} ends")
        for kind, track, time in ends:
            if not any(begin <= time <= end for begin, end in tracks[track]):
                found.append(f"arrow {arrow} {kind} is in no slice")
    return found


def _overlaps(track, slices):
    """Pairs of slices of a track that overlap, neither inside the other."""
    opened = []
    for begin, end in sorted(slices, key=lambda one: (one[0], -one[1])):
        while opened and opened[-1] <= begin:
            opened.pop()
        if opened and end > opened[-1]:
            yield f"slices of {track} overlap at {begin} without nesting"
        opened.append(end)


def timeline(tmp_path, *captures) -> str:
    path = tmp_path / "timeline.json"
    assert main(["trace", *map(str, captures), "-o", str(path)]) == 0
    return path.read_text()


@pytest.mark.parametrize("name", CHECKED_IN)
def test_timelines_of_captures_keep_to_the_format(tmp_path, name):
    assert faults(timeline(tmp_path, CAPTURES / f"{name}.sqlite.gz")) == []


@pytest.mark.parametrize("version", STYLES)
def test_timelines_of_traces_of_torch_keep_to_the_format(tmp_path, version):
    ranks = [write_trace(tmp_path / f"{rank}.json", STYLES[version]) for rank in range(2)]
    assert faults(timeline(tmp_path, *ranks)) == []


def test_slices_that_overlap_without_nesting_are_on_further_tracks(tmp_path):
    capture = Synthetic()
    for number in range(4):
        capture.range(f"range {number}", 10 * number, 10 * number + 25)
        capture.kernel("kernel", at=10 * number + 24, start=100 + 10 * number, duration=15)
    text = timeline(tmp_path, capture.write(tmp_path / "capture.sqlite"))
    assert faults(text) == []
    names = [event["args"]["name"] for event in json.loads(text)["traceEvents"] if event["name"] == "thread_name"]
    assert {"thread 1", "thread 1 (2)", "thread 1 (3)"} <= set(names)
    assert {"GPU 0, stream 7", "GPU 0, stream 7 (2)"} <= set(names)


@pytest.mark.parametrize(
    ("event", "fault"),
    [
        ({"ph": "X", "ts": 5, "dur": 10}, "overlap at 5"),
        ({"ph": "X", "ts": 5, "dur": -1}, "no duration"),
        ({"ph": "X", "ts": -5, "dur": 1}, "no time"),
        ({"ph": "s", "ts": 5, "id": 1}, "has 1 ends"),
        ({"ph": "B", "ts": 5, "dur": 1}, "a phase"),
        ({"ph": "X", "ts": 5, "dur": 1, "tid": 9}, "without a name"),
    ],
)
def test_the_checker_finds_faults(event, fault):
    plain = {"name": "a", "cat": "c", "pid": 1, "tid": 1}
    named = [
        {"ph": "M", "name": name, "pid": 1, "tid": 1, "args": {"name": "x"}} for name in ("process_name", "thread_name")
    ]
    events = [*named, plain | {"ph": "X", "ts": 0, "dur": 10}, plain | event]
    assert any(fault in one for one in faults(json.dumps({"traceEvents": events})))
