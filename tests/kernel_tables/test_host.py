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

    def table_of(capture: Synthetic) -> pd.DataFrame:
        with kernel_tables.read(capture.write(tmp_path / "capture.sqlite")) as profile:
            return host_table(profile)

    return table_of


def told(table: pd.DataFrame) -> dict[tuple, tuple]:
    """(calls, ns, own ns) by thread, phase, source and function."""
    rows = table.astype({"time_ns": object, "own_ns": object}).where(table.notna(), None).itertuples()
    return {(row.thread, row.where, row.source, row.function): (row.calls, row.time_ns, row.own_ns) for row in rows}


def step() -> Synthetic:
    """Two launches in the forward pass, one in the backward pass by a thread of its own while the first one waits."""
    capture = Synthetic().range("step", 0, 100).range("forward", 10, 50).range("backward", 50, 90)
    capture.call(20, 1, duration=4).call(21, 101, api="cuLaunchKernel", duration=2).kernel("k", at=20, correlation=1)
    capture.call(30, 2, duration=4).kernel("k", at=30, correlation=2)
    capture.call(60, 3, thread=2, duration=4).kernel("k", at=60, correlation=3)
    return capture.os_call("pthread_cond_wait", 55, 30).os_call("read", 30, 2)


def test_a_step_and_a_replay_by_hand(table_of):
    capture = step().range("step", 200, 300).range("replay", 210, 250).node(1, 15)
    capture.call(220, 7, api="cudaGraphLaunch", duration=30).kernel("k", at=220, correlation=7, node=1)
    table = table_of(capture).query("where == 'replay'")
    assert table[["function", "launches", "us_per_launch"]].to_numpy().tolist() == [
        ["cudaGraphLaunch", 1, 0.03], ["(in no call)", 1, 0.01],
    ]  # fmt: skip
    assert told(table_of(step())) == {
        (1, "(outside)", "none", "(in no call)"): (0, 20, 20),
        (1, "forward", "none", "(in no call)"): (0, 32, 32),
        (1, "forward", "cuda", "cudaLaunchKernel"): (2, 8, 4),
        (1, "forward", "cuda", "cuLaunchKernel"): (1, 2, 2),
        (1, "forward", "osrt", "read"): (1, 2, 2),
        (1, "backward", "osrt", "pthread_cond_wait"): (1, 30, 30),
        (1, "backward", "none", "(in no call)"): (0, 10, 10),
        (2, "backward", "cuda", "cudaLaunchKernel"): (1, 4, 4),
    }


@pytest.mark.parametrize("seed", range(6))
def test_a_call_has_what_a_clock_finds_that_looks_at_every_nanosecond_by_itself(table_of, seed):
    random, capture, calls, expected = Random(seed), Synthetic(), [], {}
    for number in range(25):  # calls may cross each other
        thread, at, length = random.choice((1, 2)), random.randrange(60), random.choice((0, 1, 3, 8, 40))
        source, name = random.choice(("cuda", "osrt")), random.choice("abc")
        if source == "cuda":
            capture.call(at, number + 1, thread=thread, api=name, duration=length)
        else:
            capture.os_call(name, at, length, thread=thread)
        calls.append((thread, at, at + length, source, name))
        expected.setdefault((thread, "(outside)", source, name), [0, 0, 0])[0] += 1
    for thread in (1, 2):
        for now in range(100):
            inside = [call for call in calls if call[0] == thread and call[1] <= now < call[2]]
            inside.sort(key=lambda call: (call[1], -call[2], call[3]))  # the innermost last
            for function in {call[3:] for call in inside}:
                expected[thread, "(outside)", *function][1] += 1
            for innermost in inside[-1:]:
                expected[thread, "(outside)", *innermost[3:]][2] += 1
    assert told(table_of(capture)) == {key: tuple(own) for key, own in expected.items()}


def test_a_thread_without_ranges_has_the_phase_of_its_process_in_which_its_call_begins(table_of):
    capture = Synthetic().range("step", 0, 100).range("forward", 10, 90).range("load", 225, 290)
    capture.os_call("poll", 40, 200, thread=3).os_call("poll", 280, 40, thread=3).os_call("poll", 300, 5, thread=3)
    found = {key: value for key, value in told(table_of(capture)).items() if key[0] == 3}
    assert found == {
        (3, "forward", "osrt", "poll"): (1, 200, 200),
        (3, "load", "osrt", "poll"): (1, 40, 35),
        (3, "(outside)", "osrt", "poll"): (1, 5, 5),
    }


def test_a_sample_stands_for_the_time_between_two_and_is_named_by_its_innermost_function(table_of, tmp_path):
    capture = step().python_sample(15, ("norm", "/home/me/model.py"), ("forward", "/home/me/model.py"))
    for at in (21, 25, 36):
        capture.python_sample(at, ("linear", "/x/site-packages/torch/nn/functional.py"))
    capture.python_sample(46, ("&lt;lambda&gt;", "&lt;string&gt;")).python_sample(37, ("hook", "own.py"), thread=2)
    capture.sample(10, ("memcpy", "libc.so"), ("norm", "model.py")).sample(20, ("poll", "libc.so"))
    table = table_of(capture)
    rows = table[table["source"].isin(["python", "sample"])].set_index(["thread", "where", "function"])
    figures = rows[["samples", "estimated_ns"]]
    period = 8  # the gaps on thread 1 are 6, 4, 11 and 10
    assert {key: tuple(row) for key, row in zip(figures.index, figures.to_numpy().tolist(), strict=True)} == {
        (1, "forward", "linear (torch.nn.functional)"): (3, 3 * period),
        (1, "forward", "norm (model)"): (1, period),
        (1, "forward", "<lambda> (<string>)"): (1, period),
        (2, "forward", "hook (own)"): (1, period),
        (1, "forward", "norm"): (1, 10),
        (1, "forward", "poll"): (1, 10),
    }
    path = step().python_sample(15, ("norm", "model.py")).write(tmp_path / "capture.sqlite")
    with kernel_tables.read(changed(path, "UPDATE NVTX_EVENTS SET binaryData = NULL")) as profile:
        table = host_table(profile)  # a single sample has no estimate, and without payloads no name
    sample = table.loc[table["source"] == "python", ["function", "samples", "estimated_ns"]]
    assert sample.astype(object).where(sample.notna(), None).to_numpy().tolist() == [["(unknown)", 1, None]]


def test_the_command_tells_what_a_real_capture_does_not_hold(tmp_path, capfd):
    for name, said, source in (
        ("tiny_2025.3.1.sqlite", ["no calls of the OS runtime", "no sampled stacks"], "cuda"),
        ("traces/without_a_gpu_2026.json", ["PyTorch's profiler records no calls of the OS runtime"], "operator"),
    ):
        assert main(["host", str(CAPTURES / f"{name}.gz"), "-o", str(tmp_path / "host.csv")]) == 0
        err = capfd.readouterr().err
        assert all(sentence in err for sentence in said)
        assert {"none", source} == {*pd.read_csv(tmp_path / "host.csv", keep_default_na=False)["source"]}


def test_a_call_as_long_as_the_range_around_it_has_the_time():
    capture = Path(__file__).parent / "reports" / "roctracer0.json.gz"
    with kernel_tables.read(capture) as profile:
        table = host_table(profile).set_index("function")
    assert table["own_ns"]["LaunchKernel by an operator"] == 75_000
