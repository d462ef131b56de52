"""Where the wall time of a step goes: each nanosecond in one part, waiting for data among them."""

import json
import random
from dataclasses import replace

import numpy as np
import pytest

from kernel_tables.diagnosis import scope as scope_module
from kernel_tables.diagnosis.devices import Device
from kernel_tables.diagnosis.diagnose import diagnose
from kernel_tables.diagnosis.scope import Scope
from kernel_tables.diagnosis.step_rules import step_times_ns
from kernel_tables.diagnosis.step_time import step_time
from kernel_tables.errors import NotConserved
from kernel_tables.reading.schema import WINDOW_KEY
from kernel_tables.terminal.findings import finding_lines
from kernel_tables.trace import Trace
from tests.kernel_tables.diagnosis.program import GEMM, MUL, NCCL, Program
from tests.kernel_tables.synthetic import Synthetic

NEXT = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
MS = 1_000_000


def on_cpu(waits_ms: int, thread: int = 1) -> Synthetic:
    """Three steps of 100 ms; each waits, works for 40 ms, and does other things."""
    capture = Synthetic()
    for number in range(3):
        at = number * 100 * MS
        capture.range("step", at, at + 100 * MS).range(NEXT, at, at + waits_ms * MS, thread=thread)
        for part in range(4):
            begin = at + (50 + 11 * part) * MS
            capture.kernel("aten::linear", at=begin, start=begin, duration=10 * MS, device=-1)
    return capture


def read(capture: Synthetic, tmp_path) -> Trace:
    return Trace(capture.write(tmp_path / "capture.sqlite"))


def test_on_the_cpu_a_step_is_operators_waiting_for_data_and_other_host_time(tmp_path):
    with read(on_cpu(waits_ms=45), tmp_path) as trace:
        time = step_time(Scope(trace))
        (said,) = [one for one in diagnose(trace) if one.code == "waiting_for_data"]
    assert time.parts_ns == {"operators": 40 * MS, "waiting for data": 45 * MS, "other host time": 15 * MS}
    assert time.sentence == (
        "a step takes 100 ms (wall time, mean of 3): operators 40.0 ms (40.0 %), waiting for data 45.0 ms (45.0 %),"
        " other host time 15.0 ms (15.0 %)"
    )
    assert (said.gain_ms, said.gain_percent) == (45, 45)
    assert said.message.startswith(
        "the program waits 45.0 ms of a step (45.0 %) for the next batch of a DataLoader, maybe"
    )


def test_short_waits_and_those_of_another_thread_are_no_finding(tmp_path):
    for capture in (on_cpu(waits_ms=4), on_cpu(waits_ms=45, thread=2)):
        with read(capture, tmp_path) as trace:
            assert "waiting_for_data" not in {one.code for one in diagnose(trace)}


def loading(kernel_us: float, wait_us: float) -> Program:
    """A GPU program whose host waits for data in each step and synchronizes at the end of none."""
    program = Program()
    for _ in range(8):
        with program.range("step"):
            with program.range(NEXT):
                program.pause(wait_us)
            for _ in range(10):
                program.launch(GEMM, kernel_us)
    return program


def test_on_a_gpu_only_waiting_that_leaves_it_idle_is_found_and_then_alone(tmp_path):
    with read(loading(kernel_us=100, wait_us=4000).capture, tmp_path) as trace:
        said = {one.code: one for one in diagnose(trace) if not one.abstained}
        time = step_time(Scope(trace))
    assert set(said) == {"waiting_for_data"}
    assert time.parts_ns["idle, waiting for data"] == pytest.approx(4 * MS - 7 / 8 * 0.957 * MS, rel=0.01)
    # A step without the wait is its ten kernels, and so is the first but for the time before it.
    gained_ms = 7 / 8 * (4.0 + 0.05 + 0.004 - 1.0) + 1 / 8 * 4.0
    assert said["waiting_for_data"].gain_ms == pytest.approx(gained_ms, rel=0.02)
    with read(loading(kernel_us=1000, wait_us=4000).capture, tmp_path) as trace:
        assert not [one for one in diagnose(trace) if not one.abstained]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("device", [0, -1])
def test_the_parts_are_those_of_every_moment(seed, device, tmp_path):
    numbers, capture = random.Random(seed), Synthetic()
    kinds = np.zeros(3000, int)  # by ns: 0 idle, 1 waiting, 2 communication, 3 computation
    loads = np.zeros(3000, bool)
    steps = [(0, 1000), (1000, 2200), (2200, 3000)]
    for start, end in steps:
        capture.range("step", start, end)
        wait = numbers.randrange(start, end - 100)
        capture.range(NEXT, wait, wait + 90)
        kinds[wait : wait + 90] = np.maximum(kinds[wait : wait + 90], 1)
        loads[wait : wait + 90] = device == -1  # what a processor computes to load data counts as waiting
        for _ in range(6):
            begin, length = numbers.randrange(start, end - 80), numbers.randrange(1, 80)
            name, kind = numbers.choice([(MUL, 3), (NCCL, 2)])
            capture.kernel(name, at=begin, start=begin, duration=length, device=device, stream=numbers.randrange(3))
            kinds[begin : begin + length] = np.maximum(kinds[begin : begin + length], kind)
    with read(capture, tmp_path) as trace:
        scope = Scope(trace)
        time = step_time(scope)
        assert scope.span_ns == 3000
        first_ns = 0 if device == -1 else int(scope.devices[0].start_ns[0])
        assert step_times_ns(scope).sum() == 3000 - first_ns
    parts = np.where(loads & (kinds == 3), 1, kinds)
    expected = [np.count_nonzero(parts == kind) / 3 for kind in (3, 2, 1, 0)]
    assert list(time.parts_ns.values()) == pytest.approx([ns for ns in expected if ns])
    assert time.busy_share == pytest.approx(np.count_nonzero(kinds > 1) / 3000)


def test_parts_that_do_not_add_up_are_refused(monkeypatch, tmp_path):
    real = scope_module.device_of

    def longer(*arguments) -> Device:
        return replace(device := real(*arguments), last_ns=device.last_ns + 1)

    with read(on_cpu(waits_ms=45), tmp_path) as trace:
        scope = Scope(trace)
        assert scope.parts_ns
        monkeypatch.setattr(scope_module, "device_of", longer)
        scope.__dict__.pop("devices")
        with pytest.raises(NotConserved):
            step_time(scope)


def noted(program: Program, before_ms: float) -> Synthetic:
    """The capture of a program whose steps took so long before the window, as `record` notes it."""
    return program.capture.metadata(WINDOW_KEY, json.dumps({"step_before_s": before_ms / 1e3}))


def test_gains_are_of_a_step_before_recording_which_leaves_less_idle_time_on_a_gpu(tmp_path):
    # Each step has a millisecond of kernels, and takes five; before recording, it took 2.5.
    with read(noted(loading(kernel_us=100, wait_us=4000), 2.5), tmp_path) as trace:
        time, (said,) = step_time(Scope(trace)), [one for one in diagnose(trace) if not one.abstained]
        assert "; 2.50 ms before recording): kernels" in time.sentence
    assert said.gain_ms == pytest.approx(1.5), "what the kernels leave"
    assert said.gain_percent == pytest.approx(60)
    assert "fixing it saves at most 60 % of a step before recording. To fix it, load data" in said.sentence(
        time.percent_base
    )
    assert f"at most 1.50 ms (60.0 % of a step before recording), {said.sure}" in finding_lines([said], 100, time)


def test_gains_on_a_processor_whose_operators_recording_slows_are_not_cut(tmp_path):
    capture = on_cpu(waits_ms=45).metadata(WINDOW_KEY, json.dumps({"step_before_s": 0.06}))
    with read(capture, tmp_path) as trace:
        (said,) = [one for one in diagnose(trace) if one.code == "waiting_for_data"]
    assert (said.gain_ms, said.gain_percent) == (45, pytest.approx(75))


@pytest.mark.parametrize("before_ms", [0.9, 60.0])
def test_steps_before_recording_that_were_longer_or_had_other_work_are_no_base(tmp_path, before_ms):
    with read(noted(loading(kernel_us=100, wait_us=4000), before_ms), tmp_path) as trace:
        time, (said,) = step_time(Scope(trace)), [one for one in diagnose(trace) if not one.abstained]
    assert (time.before_in_words, time.percent_base) == ("", "")
    assert said.gain_percent == pytest.approx(100 * said.gain_ms * MS / time.ns)
