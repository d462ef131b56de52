"""The tracks of ranges on streams, in the file that Perfetto opens."""

import json
from collections import defaultdict

from kernel_tables.__main__ import main
from kernel_tables.attribution.path_text import as_path
from kernel_tables.trace import Trace
from kernel_tables.views.perfetto import RANGE_TRACK, STREAM_TRACK
from tests.kernel_tables.torch_formats import STYLES, write_trace


def test_every_kernel_lies_on_its_streams_track_of_ranges_in_the_ranges_of_its_path(tmp_path):
    path, timeline = write_trace(tmp_path / "trace.json", STYLES["2026, since a base"]), tmp_path / "timeline.json"
    assert main(["trace", str(path), "-o", str(timeline)]) == 0
    events = json.loads(timeline.read_text())["traceEvents"]
    tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            tracks[event["tid"]].append((event["ts"], event["ts"] + event["dur"], event))
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    kernels = [event for event in events if event.get("cat") == "kernel" and event["args"]["range"].startswith("step")]
    assert len(kernels) == 5
    for kernel in kernels:
        of_ranges = kernel["tid"] - STREAM_TRACK + RANGE_TRACK
        assert names[of_ranges] == f"{names[kernel['tid']]}: ranges"
        begin, end = kernel["ts"], kernel["ts"] + kernel["dur"]
        around = [one for first, last, one in tracks[of_ranges] if first <= begin and end <= last]
        assert as_path([one["name"] for one in around]) == kernel["args"]["range"]


def test_a_range_lasts_on_a_stream_from_its_first_to_its_last_activity(tmp_path):
    path, timeline = write_trace(tmp_path / "trace.json", STYLES["2026, since a base"]), tmp_path / "timeline.json"
    main(["trace", str(path), "-o", str(timeline)])
    with Trace(path) as trace:
        table = trace.activities()
        of_step = table[[trace.paths[number][0] == "step" for number in table["path_id"]]]
    by_stream = of_step.groupby("stream")
    expected = sorted((by_stream["end_ns"].max() - by_stream["start_ns"].min()) / 1000)
    events = json.loads(timeline.read_text())["traceEvents"]
    steps = [event for event in events if event.get("cat") == "range of a stream" and event["name"] == "step"]
    assert sorted(event["dur"] for event in steps) == expected
