"""Activities whose times cannot be: errors that count as launches, and enter no other figure of any command."""

import csv
import io
import json
import random
from pathlib import Path

import numpy as np
import pytest

import kernel_tables
from tests.kernel_tables.command import run_command
from tests.kernel_tables.synthetic import Synthetic, random_capture

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
    assert lines.startswith(f"a step takes {step_us} µs" if step_us < 1000 else "a step takes 20.6 ms")


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


@pytest.mark.parametrize("seed", range(6))
def test_no_share_exceeds_all_and_no_step_its_capture_whatever_is_planted(seed, tmp_path):
    rng, capture = random.Random(seed), random_capture(seed)
    rows = capture.rows["CUPTI_ACTIVITY_KIND_KERNEL"]
    last_ns = max(row.get("end") or 0 for of_table in capture.rows.values() for row in of_table)
    planted = rng.sample(rows, min(3, len(rows)))
    for row in planted:
        kind = rng.randrange(3)
        row["start"], row["end"] = [(0, 0), (row["end"], row["start"]), (row["start"], row["start"])][kind]
    path = capture.write(tmp_path / "capture.sqlite")
    for command in ("kernels", "ranges", "classes", "diagnose", "communication", "host", "check"):
        done = run_command(command, path, "--format", "json")
        assert done.returncode in (0, 1), done.stderr
        for row in json.loads(done.stdout or "[]"):
            for name, value in row.items():
                if isinstance(value, int | float) and ("share" in name or name == "gain_percent"):
                    assert 0 <= value <= (100 if name == "gain_percent" else 1), (command, row)
                if name in ("step_ns", "duration_ns", "max_ns") and value is not None:
                    assert 0 <= value <= last_ns, (command, row)
    with kernel_tables.read(path) as profile:
        assert (~profile.timed).sum() >= len(planted) - 1
        spans = profile.activities().dropna(subset=["duration_ns"])
        assert (spans["duration_ns"] >= 0).all() and np.isin(spans["range"].isna(), [False]).all()


@pytest.mark.parametrize(
    "name, lost, of_steps",
    [("steps_without_kernels_malformed.json.gz", 30, "2 of 32"), ("graph_underrecorded.json.gz", 16, "4 of 20")],
)
def test_lost_steps_stand_before_the_advice_which_abstains(name, lost, of_steps):
    done = run_command("diagnose", REPORTS / name, "--format", "csv")
    assert f"{lost} of {lost + int(of_steps.split()[0])} ranges 'step' hold no kernel" in done.stderr.decode()
    rows = {row["code"]: row for row in csv.DictReader(io.StringIO(done.stdout.decode()))}
    assert rows["launch_bound"]["abstained"] == "True" and "lack their kernels" in rows["launch_bound"]["message"]
    assert f"mean of {of_steps} steps" in run_command("diagnose", REPORTS / name, "--format", "text").stdout.decode()
    for command in ("kernels", "ranges", "classes"):
        assert b"hold no kernel" in run_command(command, REPORTS / name, "--format", "csv").stderr
