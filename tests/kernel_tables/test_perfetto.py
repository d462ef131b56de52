"""The timeline for Perfetto: ranges, launches and kernels on their tracks, with arrows."""

import gzip
import json
from collections import defaultdict

from tests.kernel_tables.command import run_command
from tests.kernel_tables.synthetic import Synthetic


def events_of(folder, *captures, name="trace.json") -> list[dict]:
    done = run_command("trace", *captures, "-o", folder / name)
    assert (done.returncode, done.stdout) == (0, b""), done.stderr
    content = (folder / name).read_bytes()
    return json.loads(gzip.decompress(content) if name.endswith(".gz") else content)["traceEvents"]


def test_it_holds_ranges_launches_kernels_with_their_paths_and_arrows(tmp_path):
    made = Synthetic().range("measure", 0, 100).range("step", 10, 50).kernel("f", at=20).kernel("gemm", at=None)
    events = events_of(tmp_path, made.write(tmp_path / "c.sqlite"), name="trace.json.gz")
    slices = {(event["cat"], event["name"]): event for event in events if event["ph"] == "X"}
    ranges = {("range", "measure"), ("range", "step")}
    assert set(slices) == ranges | {("launch", "cudaLaunchKernel"), ("kernel", "f")}
    kernel = slices["kernel", "f"]
    assert (kernel["ts"], kernel["dur"]) == (0.025, 0.01)
    assert kernel["args"] == {"range": "measure > step", "class": "unknown", "device": 0}
    begin, end = (next(event for event in events if event["ph"] == phase) for phase in "sf")
    assert (begin["id"], begin["tid"], begin["ts"]) == (end["id"], slices["launch", "cudaLaunchKernel"]["tid"], 0.02)
    assert (end["tid"], end["ts"]) == (kernel["tid"], kernel["ts"])
    names = {event["args"]["name"] for event in events if event["ph"] == "M"}
    assert names == {"process 1", "thread 1", "GPU 0, stream 7"}


def test_slices_of_a_track_nest_and_others_are_on_further_tracks(tmp_path):
    made = Synthetic().range("a", 0, 50).range("b", 40, 90, kind=60).kernel("f", at=5, start=10, duration=30)
    made.kernel("g", at=6, start=20, duration=40)
    events = events_of(tmp_path, made.write(tmp_path / "c.sqlite"))
    names = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert {"thread 1", "thread 1 (2)", "GPU 0, stream 7", "GPU 0, stream 7 (2)"} <= names
    tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            open_ = [end for end in tracks[event["pid"], event["tid"]] if end > event["ts"]]
            assert all(event["ts"] + event["dur"] <= end for end in open_)
            tracks[event["pid"], event["tid"]] = [*open_, event["ts"] + event["dur"]]


def test_captures_of_ranks_are_below_one_another_on_one_clock(tmp_path):
    paths = []
    for rank, later in ((0, 0), (1, 500)):
        made = Synthetic().range("step", 100 + later, 300 + later).kernel("f", at=150 + later)
        paths.append(made.write(tmp_path / f"rank{rank}.sqlite"))
    events = events_of(tmp_path, *paths)
    names = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert names == {"rank 0, process 1", "rank 1, process 1"}
    steps = [(event["pid"], event["ts"]) for event in events if (event.get("cat"), event["name"]) == ("range", "step")]
    assert len({pid for pid, _ in steps}) == 2 and {ts for _, ts in steps} == {0}
