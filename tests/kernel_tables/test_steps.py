"""The steps of a capture and where their wall time goes: each nanosecond in one part, waiting for data among them."""

import random
from dataclasses import replace

import numpy as np
import pytest

import kernel_tables
from kernel_tables.errors import NotConserved
from kernel_tables.steps import PARTS, Scope, clock_offsets_ns, measured_steps, phases_and_parts, step_time
from tests.kernel_tables.program import GEMM, MUL, NCCL
from tests.kernel_tables.synthetic import Synthetic

NEXT = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def read(capture: Synthetic, folder) -> kernel_tables.Profile:
    return kernel_tables.read(capture.write(folder / "capture.sqlite"))


@pytest.mark.parametrize("device", [0, -1])
def test_the_parts_of_steps_are_those_of_every_moment(device, tmp_path):
    for seed in range(5):
        numbers, backend = random.Random(seed), "nsys" if device == 0 else "torch"
        capture = Synthetic().metadata("CAPTURE_BACKEND", backend)
        kinds = np.zeros(3000, int)  # by ns: 0 idle, 1 waiting, 2 copies, 3 communication, 4 computation
        loads = np.zeros(3000, bool)
        for start, end in ((0, 1000), (1000, 2200), (2200, 3000)):
            capture.range("step", start, end)
            wait = numbers.randrange(start, end - 100)
            capture.range(NEXT, wait, wait + 90)
            kinds[wait : wait + 90] = np.maximum(kinds[wait : wait + 90], 1)
            loads[wait : wait + 90] = device == -1  # what a processor computes to load data counts as waiting
            for _ in range(8):
                begin, length = numbers.randrange(start, end - 80), numbers.randrange(1, 80)
                where = {"at": begin, "start": begin, "duration": length, "device": device}
                where["stream"] = numbers.randrange(3)
                kind = numbers.choice([2, 3, 4] if device == 0 else [3, 4])
                capture.memset(**where) if kind == 2 else capture.kernel({3: NCCL, 4: MUL}[kind], **where)
                kinds[begin : begin + length] = np.maximum(kinds[begin : begin + length], kind)
        with read(capture, tmp_path) as profile:
            scope = Scope(profile)
            time = step_time(scope)
            assert scope.span_ns == 3000
        of_device = [np.count_nonzero(kinds == kind) for kind in (4, 3, 2)]
        assert [scope.parts_ns[part] for part in PARTS] == [*of_device, 3000 - sum(of_device)]
        parts = np.where(loads & (kinds == 4), 1, kinds)
        expected = [np.count_nonzero(parts == kind) / 3 for kind in (4, 3, 2, 1, 0)]
        assert list(time.parts_ns.values()) == pytest.approx([ns for ns in expected if ns])
        assert 1 - sum(time.idle_ns.values()) / time.ns == pytest.approx(np.count_nonzero(kinds > 1) / 3000)


def test_parts_that_do_not_add_up_are_refused(tmp_path):
    with read(Synthetic().range("step", 0, 100).kernel(GEMM, at=10, duration=50), tmp_path) as profile:
        scope = Scope(profile)
        assert scope.parts_ns["compute"] == 50
        scope.devices[0] = replace(scope.devices[0], last_ns=scope.devices[0].last_ns + 1)
        with pytest.raises(NotConserved):
            step_time(scope)


def test_without_a_gpu_a_step_is_operators_waiting_for_data_and_other_host_time(tmp_path):
    capture, ms = Synthetic().metadata("CAPTURE_BACKEND", "torch"), 1_000_000
    for at in range(0, 300 * ms, 100 * ms):
        capture.range("step", at, at + 100 * ms).range(NEXT, at, at + 45 * ms)
        capture.range(NEXT, at + 90 * ms, at + 99 * ms, thread=2)  # which fetches what nobody waits for
        for part in range(4):
            begin = at + (50 + 11 * part) * ms
            capture.kernel("aten::linear", at=begin, start=begin, duration=10 * ms, device=-1)
    with read(capture, tmp_path) as profile:
        assert step_time(Scope(profile)).sentence == (
            "a step takes 100 ms (wall time, mean of 3): operators 40.0 ms (40.0 %), waiting for data 45.0 ms (45.0 %),"
            " other host time 15.0 ms (15.0 %)"
        )
        bases = [step_time(Scope(profile, name)).percent_base for name in ("step", "epoch")]
        assert bases == [" of a recorded step", " of the capture"]


def test_of_two_processes_side_by_side_a_step_is_that_of_one_on_its_gpu(tmp_path):
    capture = Synthetic()
    for process in (1, 2):
        for at in range(process * 1_000_000, process * 1_000_000 + 800_000, 100_000):
            capture.range("step", at, at + 100_000, process=process)
            capture.kernel(GEMM, at=at, start=at + 10, duration=49_000, process=process, device=process)
    with read(capture, tmp_path) as profile:
        scope = Scope(profile)
    assert [device.number for device in scope.devices] == [1, 2]
    assert [device.span_ns for device in scope.devices] == [800_000, 800_000]
    assert (len(scope.step_ranges), scope.steps_on_devices) == (16, 16)
    assert scope.per_step_ms(scope.busy_ns(scope.is_kernel)) == pytest.approx(0.049)


def test_steps_are_those_inside_the_window_and_clocks_are_aligned_by_them(tmp_path):
    capture = Synthetic().range("step", 0, 50).range("measure", 100, 500)
    for at in (100, 300):
        capture.range("step", at, at + 100).kernel(GEMM, at=at + 10)
    other = Synthetic().range("step", 1000, 1100).kernel(GEMM, at=1010)
    with read(capture, tmp_path) as profile, kernel_tables.read(other.write(tmp_path / "other.sqlite")) as later:
        steps = measured_steps(profile, "step")
        assert profile.capture.ranges.start[steps].tolist() == [100, 300]
        assert clock_offsets_ns([profile, later]) == [0, -900]
        paths = [(), ("measure", "step"), ("measure", "step", "forward", "block"), ("setup", "copy")]
        phases, parts = phases_and_parts(paths, "step")
        assert (phases[2:], parts[2:]) == (["forward", "setup"], ["block", "copy"])
        assert phases[:2] == parts[:2] == ["(outside)"] * 2
