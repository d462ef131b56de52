"""Activities whose times cannot be: errors that count as launches, and enter no other figure of any command."""

import csv
import gzip
import io
import json
import random
from pathlib import Path

import pytest

import kernel_tables
from kernel_tables.steps import Scope, step_time
from tests.kernel_tables.command import run_command
from tests.kernel_tables.synthetic import Synthetic

REPORTS = Path(__file__).parent / "reports"


@pytest.mark.parametrize(
    "name, code, launches, total_us, step_us",
    [
        ("ts0_dur0.json.gz", "zero_time", 15, 14 * 60, 967),
        ("start_before_launch.json.gz", "starts_before_launch", 15, 14 * 60, 967),
        ("dur_overflow.json.gz", "overlaps_next", 30, 29 * 60, 983),
        ("zero_times.sqlite.gz", "zero_time", 3782, None, 20_622),
    ],
)
def test_a_time_that_cannot_be_is_an_error_and_enters_no_figure(name, code, launches, total_us, step_us):
    with kernel_tables.read(REPORTS / name) as profile:
        assert code in [one.code for one in profile.check() if one.severity == "error"]
        kernels = profile.kernels()
        assert kernels["launches"].sum() == launches
        assert total_us is None or kernels["total_ns"].sum() == 1000 * total_us
        assert profile.activities()["duration_ns"].isna().sum() == (~profile.timed).sum() > 0
    lines = run_command("diagnose", REPORTS / name, "--format", "text").stdout.decode()
    assert lines.startswith(f"error {code}: ")
    assert f"\na step takes {f'{step_us} µs' if step_us < 1000 else '20.6 ms'}" in lines


@pytest.mark.parametrize("times", [{"ts": 1e15}, {"ts": -1e15}, {"dur": 1e9}, {"dur": 1e12}, {"ts": 0, "dur": 0}])
@pytest.mark.parametrize("place", [0, 4, -1])
def test_a_time_far_from_all_others_moves_no_step_of_a_trace(tmp_path, times, place):
    content = json.loads(gzip.decompress((REPORTS / "neg_latency.json.gz").read_bytes()))
    [one for one in content["traceEvents"] if one["cat"] == "kernel"][place].update(times)
    (tmp_path / "trace.json").write_text(json.dumps(content))
    with kernel_tables.read(tmp_path / "trace.json") as profile:
        assert (~profile.timed).sum() == 1 and [one for one in profile.check() if one.severity == "error"]
        assert step_time(Scope(profile)).ns <= 1_000_000 and profile.kernels()["max_ns"].max() == 60_000


def test_clocks_that_differ_by_microseconds_and_kernels_of_no_whole_microsecond_are_right():
    with kernel_tables.read(REPORTS / "neg_latency.json.gz") as profile:
        assert profile.timed.all() and not [one for one in profile.check() if one.severity == "error"]


def test_a_launch_without_a_time_has_no_mean_and_programmatic_launches_may_overlap(tmp_path):
    capture = Synthetic().range("step", 0, 100_000)
    capture.kernel("never", at=10, start=0, duration=0).kernel("gemm", at=20, start=1_000, duration=9_000)
    capture.kernel("dependent", at=30, start=9_500, duration=5_000)
    capture.kernel("backwards", at=40, start=30_000, duration=-5)
    with kernel_tables.read(capture.write(tmp_path / "capture.sqlite")) as profile:
        rows = profile.kernels().set_index("kernel")
        assert {name: len(found) for name, found in profile.capture.activities.impossible.items()} == {
            "zero_time": 1, "negative_duration": 1,
        }  # fmt: skip
        assert rows.loc["never", ["launches", "total_ns"]].tolist() == [1, 0]
        assert rows.loc["never", ["mean_ns", "min_ns", "max_ns", "std_ns"]].isna().all()
        assert rows.loc["gemm", "total_ns"] == 9_000 and rows.loc["dependent", "total_ns"] == 5_000


MS = 1_000_000
PLANTED = {  # by code: the start and the end of an activity, of its true ones
    "zero_time": lambda rng, start, end: rng.choice([(0, 0), (start, start)]),
    "negative_duration": lambda rng, start, end: (end, start),
    "starts_before_launch": lambda rng, start, end: (rng.randrange(50 * MS), end),
    "overlaps_next": lambda rng, start, end: (start, end + rng.randrange(5 * MS, 500 * MS)),
}


def steps_with(rng: random.Random, *codes: str) -> tuple[Synthetic, int]:
    """Four steps of 10 ms after 100 ms, with kernels and copies on two streams, some with times of these kinds; and the
    time of the others."""
    capture, total_ns = Synthetic(), 0
    faults = dict(zip(rng.sample(range(72), len(codes)), codes, strict=True))
    for number in range(80):
        step, place = number % 4, number // 4
        at = 100 * MS + 10 * MS * step + 400_000 * place
        start = at + 20_000 + rng.randrange(5_000)
        end = start + rng.randrange(1_000, 150_000)
        if not place:
            capture.range("step", at, at + 9 * MS)
        if number in faults:
            start, end = PLANTED[faults[number]](rng, start, end)
        else:
            total_ns += end - start
        launch = {"start": start, "duration": end - start, "stream": 7 + place % 2}
        if place % 5 == 3 and faults.get(number) != "zero_time":
            capture.memcpy(at, **launch)
        else:
            capture.kernel(rng.choice(["gemm", "ncclDevKernel_AllReduce_Sum_f32_RING_LL()"]), at, **launch)
    return capture, total_ns


@pytest.mark.parametrize("codes", [["zero_time", "overlaps_next"], ["negative_duration", "starts_before_launch"]])
def test_no_share_exceeds_all_and_no_step_its_capture_whatever_is_planted(codes, tmp_path):
    for seed in range(10):
        capture, total_ns = steps_with(random.Random(seed), *codes)
        path = capture.write(tmp_path / "capture.sqlite")
        with kernel_tables.read(path) as profile:
            assert {finding.code for finding in profile.check() if finding.severity == "error"} == set(codes)
            assert (~profile.timed).sum() == len(codes)
            found = profile.kernels()
            assert (found["launches"].sum(), found["total_ns"].sum()) == (80, total_ns)
            assert 9 * MS < step_time(Scope(profile)).ns < 10 * MS
    for command in ("kernels", "ranges", "classes", "diagnose", "communication", "host", "check", "diff"):
        done = run_command(command, path, *([path] if command == "diff" else []), "--format", "json")
        assert done.returncode == (command == "check"), done.stderr
        for row in json.loads(done.stdout or "[]"):
            for name, value in row.items():
                if isinstance(value, int | float) and not isinstance(value, bool):
                    limit = 100 if name.endswith("percent") else 1 if "share" in name else 140 * MS
                    assert 0 <= value <= limit, (command, name, value)
    assert run_command("trace", path, "-o", tmp_path / "timeline.json").returncode == 0
    events = json.loads((tmp_path / "timeline.json").read_text())["traceEvents"]
    assert max(event["ts"] + event.get("dur", 0) for event in events if "ts" in event) * 1000 < 140 * MS


@pytest.mark.parametrize(
    "name, lost, of_steps",
    [("steps_without_kernels_malformed.json.gz", 30, "2 of 32"), ("graph_underrecorded.json.gz", 16, "4 of 20")],
)
def test_lost_steps_stand_before_the_advice_which_abstains(name, lost, of_steps):
    done = run_command("diagnose", REPORTS / name, "--format", "csv")
    assert f"{lost} of {of_steps.split()[-1]} ranges 'step' hold no kernel" in done.stderr.decode()
    rows = {row["code"]: row for row in csv.DictReader(io.StringIO(done.stdout.decode()))}
    assert rows["launch_bound"]["abstained"] == "True" and "lack their kernels" in rows["launch_bound"]["message"]
    assert f"mean of {of_steps} steps" in run_command("diagnose", REPORTS / name, "--format", "text").stdout.decode()
    assert b"hold no kernel" in run_command("kernels", REPORTS / name, "--format", "csv").stderr
