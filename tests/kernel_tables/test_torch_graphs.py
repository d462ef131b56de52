"""Modules of replayed CUDA graphs in traces of PyTorch's profiler, which record no nodes."""

import copy
import gzip
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from kernel_tables.trace import Trace

CAPTURES = Path(__file__).parents[1] / "captures"
ACTIVITIES = {"KERNEL": "kernel", "MEMCPY": "gpu_memcpy", "MEMSET": "gpu_memset"}


@pytest.fixture(scope="module")
def capture(tmp_path_factory) -> Path:
    """Five replays of a training step of a small GPT, and its capture, recorded by nsys with nodes."""
    path = tmp_path_factory.mktemp("replayed") / "capture.sqlite"
    with gzip.open(CAPTURES / "graph_replayed_2025.3.2.sqlite.gz") as packed, path.open("wb") as file:
        shutil.copyfileobj(packed, file)
    return path


@pytest.fixture(scope="module")
def events(capture) -> list[dict]:
    """The same as PyTorch's profiler writes it: calls, activities with the correlation of their launch, annotations."""
    with closing(sqlite3.connect(capture)) as database:
        strings = dict(database.execute("SELECT id, value FROM StringIds"))

        def event(category: str, name: str, start_ns: int, end_ns: int, thread: int, **args: int) -> dict:
            times = {"ts": start_ns / 1000, "dur": (end_ns - start_ns) / 1000}
            return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": thread & 0xFFFFFF, **times, "args": args}

        calls = database.execute("SELECT nameId, start, end, globalTid, correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME")
        events = [event("cuda_runtime", strings[name], *times, correlation=number) for name, *times, number in calls]
        for table, category in ACTIVITIES.items():
            name = "demangledName" if table == "KERNEL" else "0"
            rows = database.execute(
                f"SELECT {name}, start, end, correlationId, streamId FROM CUPTI_ACTIVITY_KIND_{table}"
            )
            events += [
                event(
                    category, strings.get(text, "Memcpy DtoD"), *times, 7, correlation=number, stream=stream, device=0
                )
                for text, *times, number, stream in rows
            ]
        ranges = database.execute("SELECT text, textId, start, end, globalTid FROM NVTX_EVENTS WHERE end IS NOT NULL")
        return events + [event("user_annotation", text or strings[key], *times) for text, key, *times in ranges]


def written(path: Path, events: list[dict]) -> Path:
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return path


def kernels_by_range(path: Path) -> dict[tuple[str, str], int]:
    with Trace(path) as trace:
        return trace.kernels("measured").groupby(["range", "kernel"])["launches"].sum().to_dict()


def test_every_kernel_has_the_range_that_nsys_gives_it_by_its_node(tmp_path, capture, events):
    path = written(tmp_path / "trace.json", events)
    kernels = kernels_by_range(path)
    assert kernels == kernels_by_range(capture)
    assert sum("backward" in text for text, _ in kernels) > 20
    with Trace(path) as trace:
        assert "nodes_not_recorded" not in [found.code for found in trace.check()]
        assert [note for note in trace.notes if "replayed" in note] == [
            "1,505 of 1,507 kernels ran in replayed CUDA graphs: their ranges are those of the captured calls, in the"
            " order of the capture"
        ]


def captured(events: list[dict]) -> list[dict]:
    """The calls of the capture."""
    (begin,) = (event["ts"] for event in events if "StreamBeginCapture" in event["name"])
    (end,) = (event["ts"] for event in events if "StreamEndCapture" in event["name"])
    return [event for event in events if event["cat"] == "cuda_runtime" and begin <= event["ts"] <= end]


def replayed(events: list[dict]) -> list[dict]:
    launches = {event["args"]["correlation"] for event in events if "GraphLaunch" in event["name"]}
    return [e for e in events if e["cat"] == "kernel" and e["args"]["correlation"] in launches]


def without_begin(events: list[dict]) -> None:
    events[:] = [event for event in events if "StreamBeginCapture" not in event["name"]]


def with_a_second_capture(events: list[dict]) -> None:
    copies = captured(events)
    length_us = max(event["ts"] for event in copies) - min(event["ts"] for event in copies) + 100
    for event in copies:
        number = event["args"]["correlation"] + 10_000_000
        events.append(event | {"ts": event["ts"] - length_us, "args": {"correlation": number}})


def with_a_call_less(events: list[dict]) -> None:
    events.remove([event for event in captured(events) if "LaunchKernel" in event["name"]][7])


def with_kernels_side_by_side(events: list[dict]) -> None:
    replayed(events)[7]["dur"] += 50


def with_another_kernel_in_the_last_replay(events: list[dict]) -> None:
    max(replayed(events), key=lambda event: event["ts"])["name"] = "another_kernel"


@pytest.mark.parametrize(
    "change",
    [
        without_begin,
        with_a_second_capture,
        with_a_call_less,
        with_kernels_side_by_side,
        with_another_kernel_in_the_last_replay,
    ],
)
def test_replays_that_no_capture_certainly_explains_stay_with_their_launch(tmp_path, events, change):
    events = copy.deepcopy(events)
    change(events)
    path = written(tmp_path / "trace.json", events)
    assert {text for text, _ in kernels_by_range(path)} == {"measured"}
    with Trace(path) as trace:
        assert "nodes_not_recorded" in [found.code for found in trace.check()]
        (note,) = (note for note in trace.notes if "replayed" in note)
    assert note.startswith("1,505 of 1,507 kernels ran in replayed CUDA graphs: their range is that of the launch")
