"""What the host did, by thread, phase and function, against what is written in the test."""

import gzip
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random
from time import process_time

import pandas as pd
import pytest

from kernel_tables.__main__ import main
from kernel_tables.host.table import host_table
from kernel_tables.trace import Trace
from tests.kernel_tables.synthetic import Synthetic, changed

RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
CAPTURES = Path(__file__).parents[1] / "captures"


def told(capture: Synthetic, folder: Path, **options) -> dict[tuple, tuple]:
    """(calls, ns, samples) by thread, phase, source and function."""
    with Trace(capture.write(folder / "capture.sqlite")) as trace:
        table = host_table(trace, **options)
    rows = table.astype({"time_ns": object}).where(table.notna(), None).itertuples()
    return {(row.thread, row.where, row.source, row.function): (row.calls, row.time_ns, row.samples) for row in rows}


def step() -> Synthetic:
    """Two launches in the forward pass, one in the backward pass by a thread of its own while the first one waits."""
    capture = Synthetic().range("step", 0, 100).range("forward", 10, 50).range("backward", 50, 90)
    capture.call(20, 1, duration=4).call(21, 101, api="cuLaunchKernel", duration=2).kernel("k", at=20, correlation=1)
    capture.call(30, 2, duration=4).kernel("k", at=30, correlation=2)
    capture.call(60, 3, thread=2, duration=4).kernel("k", at=60, correlation=3)
    return capture.os_call("pthread_cond_wait", 55, 30).os_call("read", 30, 2)


def test_calls_stand_by_thread_phase_and_function_with_what_was_in_no_call(tmp_path):
    assert told(step(), tmp_path) == {
        (1, "forward", "cuda", "cudaLaunchKernel"): (2, 8, 0),
        (1, "forward", "cuda", "cuLaunchKernel"): (1, 2, 0),
        (1, "forward", "osrt", "read"): (1, 2, 0),
        (1, "forward", "none", "(in no call)"): (0, 40 - 8, 0),
        (1, "backward", "osrt", "pthread_cond_wait"): (1, 30, 0),
        (1, "backward", "none", "(in no call)"): (0, 40 - 30, 0),
        (2, "backward", "cuda", "cudaLaunchKernel"): (1, 4, 0),
        (2, "backward", "none", "(in no call)"): (0, 40 - 4, 0),
    }


def test_numbers_of_processes_and_threads_and_counts_are_integers(tmp_path):
    for capture in (step(), Synthetic().range("step", 0, 100)):
        with Trace(capture.write(tmp_path / "capture.sqlite")) as trace:
            table = host_table(trace)
        assert {table[name].dtype.kind for name in ("process", "thread", "calls", "samples", "launches")} == {"i"}


def test_a_replayed_graph_is_launched_in_the_phase_of_its_launch(tmp_path):
    capture = Synthetic().range("forward", 10, 20).node(1, 15).range("step", 100, 200).range("replay", 110, 150)
    capture.call(120, 7, api="cudaGraphLaunch", duration=4).kernel("k", at=120, correlation=7, node=1)
    with Trace(capture.write(tmp_path / "capture.sqlite")) as trace:
        table = host_table(trace).set_index(["where", "function"])
    assert table.loc[("replay", "cudaGraphLaunch"), ["launches", "us_per_launch"]].tolist() == [1, 0.004]


def test_hundreds_of_functions_stand_apart(tmp_path):
    capture = Synthetic().range("step", 0, 1000).range("forward", 0, 1000)
    for number in range(300):
        capture.os_call(f"call_{number}", 3 * number, 2)
    found = told(capture, tmp_path)
    assert {ns for key, (_, ns, _) in found.items() if key[2] == "osrt"} == {2} and len(found) == 301


def test_calls_of_one_function_that_nest_count_once(tmp_path):
    capture = Synthetic().range("step", 0, 100).os_call("read", 10, 20).os_call("read", 15, 5)
    assert told(capture, tmp_path)[(1, "(outside)", "osrt", "read")] == (2, 20, 0)


def test_time_per_launch_is_over_the_activities_of_the_phase(tmp_path):
    with Trace(step().write(tmp_path / "capture.sqlite")) as trace:
        table = host_table(trace).set_index(["thread", "where", "function"])
    # 20 to 24 and 30 to 34, without the driver's call from 21 to 23 and the read from 30 to 32, for two launches
    assert table.loc[(1, "forward", "cudaLaunchKernel"), "us_per_launch"] == pytest.approx(0.002)
    assert table.loc[(1, "forward"), "us_per_launch"].sum() == pytest.approx(0.040 / 2)


def test_a_call_over_several_phases_has_in_each_what_lies_there_and_steps_interrupt_what_is_open_around_them(tmp_path):
    capture = (
        Synthetic().range("measure", 0, 200).range("step", 0, 100).range("forward", 0, 40).range("backward", 40, 90)
    )
    capture.os_call("poll", 30, 100).call(5, 1, api="cudaMalloc").call(150, 2, api="cudaMalloc")
    assert told(capture, tmp_path) == {
        (1, "forward", "cuda", "cudaMalloc"): (1, 1, 0),
        (1, "forward", "osrt", "poll"): (1, 10, 0),
        (1, "forward", "none", "(in no call)"): (0, 29, 0),
        (1, "backward", "osrt", "poll"): (0, 50, 0),
        (1, "(outside)", "osrt", "poll"): (0, 10, 0),  # in the step, behind its phases
        (1, "measure", "osrt", "poll"): (0, 30, 0),
        (1, "measure", "cuda", "cudaMalloc"): (1, 1, 0),
        (1, "measure", "none", "(in no call)"): (0, 100 - 30 - 1, 0),
    }


def phases_of_a_program(random: Random, capture: Synthetic) -> list[str]:
    """Adds steps with phases, and ranges of other names between them, some of them in a range around all; the phase at
    every nanosecond."""
    phases: list[str] = []
    for _ in range(random.randrange(1, 4)):
        begun, is_grouped = len(phases), random.random() < 0.5
        phases += ["group"] * is_grouped
        for _ in range(random.randrange(1, 6)):
            at, length = len(phases), random.randrange(1, 20)
            if random.random() < 0.4:
                capture.range("step", at, at + length + 15).range("forward", at + 2, at + 7)
                capture.range("backward", at + 7, at + 10).range("name 0", at + 7, at + 9)
                phases += ["(outside)"] * 2 + ["forward"] * 5 + ["backward"] * 3 + ["(outside)"] * (length + 5)
            else:
                name = f"name {random.randrange(6)}"
                capture.range(name, at, at + length).range("inner", at + 1, at + length)
                phases += ["group" if is_grouped else name] * length
        if is_grouped:
            capture.range("group", begun, len(phases))
        phases += ["(outside)"] * random.randrange(3)
    return phases


@pytest.mark.parametrize("seed", range(20))
def test_calls_have_what_a_clock_finds_that_looks_at_every_nanosecond_by_itself(tmp_path, seed):
    random, capture = Random(seed), Synthetic()
    phases = phases_of_a_program(random, capture)
    calls = []
    for number in range(25):
        thread, at, length = random.choice((1, 2)), random.randrange(len(phases)), random.choice((0, 1, 3, 8, 40))
        source, name = random.choice(("cuda", "osrt")), random.choice("abc")
        if source == "cuda":
            capture.call(at, number, thread=thread, api=name, duration=length)
        else:
            capture.os_call(name, at, length, thread=thread)
        calls.append((thread, at, at + length, source, name))
    expected: dict[tuple, list[int]] = {}
    for thread, at, _, *function in calls:
        expected.setdefault((thread, phases[at], *function), [0, 0, 0])[0] += 1
    for thread in {call[0] for call in calls}:
        own = [call for call in calls if call[0] == thread]
        for now, phase in enumerate([*phases, *["(outside)"] * 40]):
            inside = [call for call in own if call[1] <= now < call[2]]
            inside.sort(
                key=lambda call: (call[1], -call[2], call[3])
            )  # the innermost last; as they stand in the capture
            for function in {call[3:] for call in inside}:
                expected.setdefault((thread, phase, *function), [0, 0, 0])[1] += 1
            innermost = inside[-1][3:] if inside else ("none", "(in no call)")
            expected.setdefault((thread, phase, *innermost), [0, 0, 0])[2] += 1
            if not inside:
                expected[thread, phase, *innermost][1] += 1
    reached = {key[:2] for key in expected if key[2] != "none" and key[1] != "(outside)"}
    expected = {key: own for key, own in expected.items() if key[2] != "none" or key[:2] in reached}
    with Trace(capture.write(tmp_path / "capture.sqlite")) as trace:
        table = host_table(trace)
    found = table.set_index(["thread", "where", "source", "function"])[["calls", "time_ns", "own_ns"]]
    assert {key: list(row) for key, row in zip(found.index, found.to_numpy().tolist(), strict=True)} == expected


def test_a_thread_without_phases_has_those_of_its_process_of_which_the_first_takes_what_two_share(tmp_path):
    capture = Synthetic().range("step", 0, 100).range("forward", 10, 90).range("load", 225, 290)
    capture.range("step", 20, 120, thread=2).range("backward", 30, 80, thread=2).range("save", 220, 250, thread=2)
    capture.range("save", 280, 310, thread=2).os_call("poll", 0, 320, thread=3).os_call("poll", 40, 200, thread=2)
    found = told(capture, tmp_path)
    assert {key[1]: ns for key, (_, ns, _) in found.items() if key[0] == 3} == {
        "forward": 80, "save": 60, "load": 30, "(outside)": 320 - 170,
    }  # fmt: skip
    assert {key[1]: ns for key, (_, ns, _) in found.items() if key[:1] == (2,) and key[2] == "osrt"} == {
        "backward": 40, "save": 20, "(outside)": 200 - 60,
    }  # fmt: skip


class WithoutLookups(Synthetic):
    """For thousands of rows: every call has a correlation id of its own."""

    def _called(self, correlation, process):
        return False


@pytest.mark.parametrize("by", ["phase", "range"])
def test_thousands_of_names_of_ranges_and_of_functions_take_seconds(tmp_path, by):
    """Two minutes, where the time grew with the product of all three."""
    capture = WithoutLookups()
    for number in range(2000):
        capture.range(f"range {number}x", 20 * number, 20 * number + 15)
        capture.call(20 * number + 2, number, api=f"cuda{number}x", duration=5)
    path, begun = capture.write(tmp_path / "capture.sqlite"), process_time()
    with Trace(path) as trace:
        table = host_table(trace, by=by)
    assert process_time() - begun < 20
    calls = table[table["source"] == "cuda"]
    assert len(calls) == 2000 and set(calls["own_ns"]) == {5}


def test_a_range_that_has_the_name_of_what_is_outside_of_phases_is_outside_of_them(tmp_path):
    capture = Synthetic().range("(outside)", 0, 50).os_call("read", 10, 5).os_call("read", 60, 5)
    assert told(capture, tmp_path) == {(1, "(outside)", "osrt", "read"): (2, 10, 0)}


def test_a_sample_is_named_by_its_innermost_python_frame_or_its_innermost_function(tmp_path):
    capture = Synthetic().range("forward", 0, 100)
    capture.sample(10, ("memcpy", "libc.so"), ("norm", "model.py"), ("forward", "model.py")).sample(
        20, ("poll", "libc.so")
    )
    found = told(capture, tmp_path)
    assert found[(1, "forward", "sample", "norm")] == found[(1, "forward", "sample", "poll")] == (0, None, 1)


def test_a_sample_outside_of_calls_stands_for_the_time_between_two_samples(tmp_path):
    capture = step().python_sample(15, ("norm", "/home/me/model.py"), ("forward", "/home/me/model.py"))
    linear = ("linear", "/x/site-packages/torch/nn/functional.py")
    capture.python_sample(21, linear).python_sample(25, linear).python_sample(
        36, linear
    )  # the first in cudaLaunchKernel
    capture.python_sample(46, ("&lt;lambda&gt;", "&lt;string&gt;")).python_sample(37, ("hook", "own.py"), thread=2)
    with Trace(capture.write(tmp_path / "capture.sqlite")) as trace:
        table = host_table(trace)
    rows = table[table["source"] == "python"].set_index(["thread", "where", "function"])
    figures = rows[["samples", "samples_in_calls", "estimated_ns"]]
    period = 8  # the gaps on thread 1 are 6, 4, 11 and 10
    assert {key: tuple(row) for key, row in zip(figures.index, figures.to_numpy().tolist(), strict=True)} == {
        (1, "forward", "linear (torch.nn.functional)"): (3, 1, 2 * period),
        (1, "forward", "norm (model)"): (1, 0, period),
        (1, "forward", "<lambda> (<string>)"): (1, 0, period),
        (2, "forward", "hook (own)"): (1, 0, period),
    }


def test_a_single_sample_has_no_estimate(tmp_path):
    with Trace(step().python_sample(15, ("norm", "model.py")).write(tmp_path / "capture.sqlite")) as trace:
        table = host_table(trace)
    assert table.loc[table["source"] == "python", "estimated_ns"].isna().all()


def test_python_samples_of_an_export_without_payloads_count_and_have_no_name(tmp_path):
    capture = step().python_sample(15, ("norm", "model.py")).write(tmp_path / "capture.sqlite")
    changed(capture, "UPDATE NVTX_EVENTS SET binaryData = NULL")
    with Trace(capture) as trace:
        table = host_table(trace)
    assert table.loc[table["source"] == "python", ["function", "samples"]].to_numpy().tolist() == [["(unknown)", 1]]


def test_by_range_the_innermost_range_has_it(tmp_path):
    capture = step().range("norm", 19, 29)
    found = told(capture, tmp_path, by="range")
    assert found[(1, "norm", "cuda", "cudaLaunchKernel")] == (1, 4, 0)
    assert found[(1, "forward", "cuda", "cudaLaunchKernel")] == (1, 4, 0)


def test_on_a_real_trace_each_thread_adds_up_to_the_phases_and_every_call_is_told(tmp_path):
    path = tmp_path / "host.sqlite"
    path.write_bytes(gzip.decompress((CAPTURES / "host_2025.3.1.sqlite.gz").read_bytes()))
    with Trace(path) as trace:
        table = host_table(trace)
    with closing(sqlite3.connect(path)) as database:
        named = "SELECT coalesce(text, value), sum(end - start) FROM NVTX_EVENTS LEFT JOIN StringIds ON id = textId"
        walls = dict(database.execute(f"{named} WHERE eventType = 59 AND globalTid & 0xFFFFFF = 25 GROUP BY 1"))
        calls = "SELECT count(*) FROM {} WHERE end > start"
        counts = [database.execute(calls.format(name)).fetchone()[0] for name in ("OSRT_API", RUNTIME)]
    for (_, phase), own_ns in table.groupby(["thread", "where"])["own_ns"].sum().items():
        assert phase in ("(outside)", "measure") or own_ns == walls[phase]
    lasting = table[table["time_ns"].fillna(0) > 0]
    assert lasting.groupby("source")["calls"].sum()[["osrt", "cuda"]].tolist() == counts
    main = table[(table["where"] == "forward") & (table["thread"] == 25)]
    free_ns = main.loc[main["source"] == "none", "own_ns"].sum()
    assert main["estimated_ns"].sum() == pytest.approx(free_ns, rel=0.25)  # as many as 1 kHz and 18 ms give


def test_the_command_tells_what_a_real_capture_does_not_hold(tmp_path, capfd):
    assert main(["host", str(CAPTURES / "tiny_2025.3.1.sqlite.gz"), "-o", str(tmp_path / "host.csv")]) == 0
    said = capfd.readouterr().err
    assert "no calls of the OS runtime" in said and "no sampled stacks" in said
    table = pd.read_csv(tmp_path / "host.csv")
    optimizer = table[(table["where"] == "optimizer") & (table["function"] == "cudaLaunchKernel")]
    assert optimizer["calls"].tolist() == [1008]
    forward = table[(table["where"] == "forward") & (table["thread"] == 444)]
    assert forward["time_ns"].sum() == 15_012_281  # the three ranges' own time: no call lies in another here
