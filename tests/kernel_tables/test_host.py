"""What the host did, by thread, phase and function, against what is written in the test."""

from pathlib import Path
from random import Random

import pandas as pd
import pytest

import kernel_tables
from kernel_tables.__main__ import main
from kernel_tables.host import host_table
from tests.kernel_tables.synthetic import Synthetic, changed

CAPTURES = Path(__file__).parents[1] / "captures"


@pytest.fixture
def table_of(tmp_path):
    """A function: the table of a capture."""

    def table_of(capture: Synthetic, **options) -> pd.DataFrame:
        with kernel_tables.read(capture.write(tmp_path / "capture.sqlite")) as profile:
            return host_table(profile, **options)

    return table_of


def told(table: pd.DataFrame) -> dict[tuple, tuple]:
    """(calls, ns, samples) by thread, phase, source and function."""
    rows = table.astype({"time_ns": object}).where(table.notna(), None).itertuples()
    return {(row.thread, row.where, row.source, row.function): (row.calls, row.time_ns, row.samples) for row in rows}


def step() -> Synthetic:
    """Two launches in the forward pass, one in the backward pass by a thread of its own while the first one waits."""
    capture = Synthetic().range("step", 0, 100).range("forward", 10, 50).range("backward", 50, 90)
    capture.call(20, 1, duration=4).call(21, 101, api="cuLaunchKernel", duration=2).kernel("k", at=20, correlation=1)
    capture.call(30, 2, duration=4).kernel("k", at=30, correlation=2)
    capture.call(60, 3, thread=2, duration=4).kernel("k", at=60, correlation=3)
    return capture.os_call("pthread_cond_wait", 55, 30).os_call("read", 30, 2)


def test_by_range_the_innermost_range_has_the_calls_that_begin_in_it(table_of):
    assert len(table_of(Synthetic().range("step", 0, 100))) == 0
    found = told(table_of(step().range("norm", 19, 29), by="range"))
    assert found[1, "norm", "cuda", "cudaLaunchKernel"] == found[1, "forward", "cuda", "cudaLaunchKernel"] == (1, 4, 0)


def test_a_replayed_graph_is_launched_in_the_phase_of_its_launch(table_of):
    capture = Synthetic().range("forward", 10, 20).node(1, 15).range("step", 100, 200).range("replay", 110, 150)
    capture.call(120, 7, api="cudaGraphLaunch", duration=4).kernel("k", at=120, correlation=7, node=1)
    table = table_of(capture).set_index(["where", "function"])
    assert table.loc[("replay", "cudaGraphLaunch"), ["launches", "us_per_launch"]].tolist() == [1, 0.004]


@pytest.mark.parametrize("seed", range(6))
def test_calls_have_what_a_clock_finds_that_looks_at_every_nanosecond_by_itself(table_of, seed):
    random, capture, phases = Random(seed), Synthetic(), []
    for _ in range(random.randrange(2, 9)):  # steps with phases, and ranges of other names between them
        at, length = len(phases), random.randrange(1, 20)
        if random.random() < 0.4:
            capture.range("step", at, at + length + 15).range("forward", at + 2, at + 7)
            capture.range("backward", at + 7, at + 10).range("name 0", at + 7, at + 9)
            phases += ["(outside)"] * 2 + ["forward"] * 5 + ["backward"] * 3 + ["(outside)"] * (length + 5)
        else:
            name = f"name {random.randrange(6)}"
            capture.range(name, at, at + length).range("inner", at + 1, at + length)
            phases += [name] * length + ["(outside)"] * random.randrange(3)
    calls, expected = [], {}
    for number in range(25):
        thread, at, length = random.choice((1, 2)), random.randrange(len(phases)), random.choice((0, 1, 3, 8, 40))
        source, name = random.choice(("cuda", "osrt")), random.choice("abc")
        if source == "cuda":
            capture.call(at, number + 1, thread=thread, api=name, duration=length)
        else:
            capture.os_call(name, at, length, thread=thread)
        calls.append((thread, at, at + length, source, name))
        expected.setdefault((thread, phases[at], source, name), [0, 0, 0])[0] += 1
    for thread in {call[0] for call in calls}:
        for now, phase in enumerate([*phases, *["(outside)"] * 40]):
            inside = [call for call in calls if call[0] == thread and call[1] <= now < call[2]]
            inside.sort(key=lambda call: (call[1], -call[2], call[3]))  # the innermost last
            for function in {call[3:] for call in inside}:
                expected.setdefault((thread, phase, *function), [0, 0, 0])[1] += 1
            innermost = inside[-1][3:] if inside else ("none", "(in no call)")
            expected.setdefault((thread, phase, *innermost), [0, 0, 0])[2] += 1
            if not inside:
                expected[thread, phase, *innermost][1] += 1
    reached = {key[:2] for key in expected if key[2] != "none" and key[1] != "(outside)"}
    expected = {key: own for key, own in expected.items() if key[2] != "none" or key[:2] in reached}
    found = table_of(capture).set_index(["thread", "where", "source", "function"])[["calls", "time_ns", "own_ns"]]
    assert dict(zip(found.index, found.to_numpy().tolist(), strict=True)) == expected


def test_a_thread_without_phases_has_those_of_its_process_of_which_the_first_takes_what_two_share(table_of):
    capture = Synthetic().range("step", 0, 100).range("forward", 10, 90).range("load", 225, 290)
    capture.range("step", 20, 120, thread=2).range("backward", 30, 80, thread=2).range("save", 220, 250, thread=2)
    capture.range("save", 280, 310, thread=2).os_call("poll", 0, 320, thread=3).os_call("poll", 40, 200, thread=2)
    ns = {key[:3]: ns for key, (_, ns, _) in told(table_of(capture)).items()}
    others = {"forward": 80, "save": 60, "load": 30, "(outside)": 320 - 170}
    own = {"backward": 40, "save": 20, "(outside)": 200 - 60}
    assert {key[1]: value for key, value in ns.items() if key[0] == 3} == others
    assert {key[1]: value for key, value in ns.items() if key[0] == 2 and key[2] == "osrt"} == own


def test_a_sample_is_named_by_its_innermost_function(table_of):
    capture = Synthetic().range("forward", 0, 100).sample(10, ("memcpy", "libc.so"), ("norm", "model.py"))
    found = told(table_of(capture.sample(20, ("poll", "libc.so"))))
    assert found[1, "forward", "sample", "norm"] == found[1, "forward", "sample", "poll"] == (0, None, 1)


def test_a_sample_outside_of_calls_stands_for_the_time_between_two_samples(table_of, tmp_path):
    capture = step().python_sample(15, ("norm", "/home/me/model.py"), ("forward", "/home/me/model.py"))
    for at in (21, 25, 36):  # the first in cudaLaunchKernel
        capture.python_sample(at, ("linear", "/x/site-packages/torch/nn/functional.py"))
    capture.python_sample(46, ("&lt;lambda&gt;", "&lt;string&gt;")).python_sample(37, ("hook", "own.py"), thread=2)
    table = table_of(capture)
    rows = table[table["source"] == "python"].set_index(["thread", "where", "function"])
    figures = rows[["samples", "samples_in_calls", "estimated_ns"]]
    period = 8  # the gaps on thread 1 are 6, 4, 11 and 10
    assert {key: tuple(row) for key, row in zip(figures.index, figures.to_numpy().tolist(), strict=True)} == {
        (1, "forward", "linear (torch.nn.functional)"): (3, 1, 2 * period),
        (1, "forward", "norm (model)"): (1, 0, period),
        (1, "forward", "<lambda> (<string>)"): (1, 0, period),
        (2, "forward", "hook (own)"): (1, 0, period),
    }
    path = step().python_sample(15, ("norm", "model.py")).write(tmp_path / "capture.sqlite")
    with kernel_tables.read(changed(path, "UPDATE NVTX_EVENTS SET binaryData = NULL")) as profile:
        table = host_table(profile)  # a single sample has no estimate, and without payloads no name
    sample = table.loc[table["source"] == "python", ["function", "samples", "estimated_ns"]]
    assert sample.astype(object).where(sample.notna(), None).to_numpy().tolist() == [["(unknown)", 1, None]]


def test_on_a_real_trace_each_thread_adds_up_to_the_phases():
    with kernel_tables.read(CAPTURES / "host_2025.3.1.sqlite.gz") as profile:
        table, ranges = host_table(profile), profile.range_instances()
    ranges = ranges[ranges["thread"] % (1 << 24) == 25]
    walls = (ranges["end_ns"] - ranges["start_ns"]).groupby(ranges["name"]).sum()
    for (_, phase), own_ns in table.groupby(["thread", "where"])["own_ns"].sum().items():
        assert phase in ("(outside)", "measure") or own_ns == walls[phase]


def test_the_command_tells_what_a_real_capture_does_not_hold(tmp_path, capfd):
    for name, said, source in (
        ("tiny_2025.3.1.sqlite", ["no calls of the OS runtime", "no sampled stacks"], "cuda"),
        ("traces/without_a_gpu_2026.json", ["PyTorch's profiler records no calls of the OS runtime"], "operator"),
    ):
        assert main(["host", str(CAPTURES / f"{name}.gz"), "-o", str(tmp_path / "host.csv")]) == 0
        err = capfd.readouterr().err
        assert all(sentence in err for sentence in said)
        assert {"none", source} == {*pd.read_csv(tmp_path / "host.csv", keep_default_na=False)["source"]}
