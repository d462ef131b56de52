"""The span of a GPU by what it did, and its gaps by cause: to the nanosecond, and against what is written out."""

import numpy as np
import pytest

from kernel_tables.diagnosis.blocking import Blocking
from kernel_tables.diagnosis.devices import Device
from kernel_tables.diagnosis.diagnose import diagnose
from kernel_tables.diagnosis.idle import HOST, LAUNCHING, claims, idle_of
from kernel_tables.diagnosis.scope import Scope
from kernel_tables.errors import NotConserved
from kernel_tables.trace import Trace
from tests.kernel_tables.diagnosis.program import GEMM, NCCL, Program
from tests.kernel_tables.synthetic import Synthetic


def moments_by_part(capture: Synthetic) -> dict[str, int]:
    """Every nanosecond from the first start to the last end, by what ran."""
    rows = {kind: capture.rows[f"CUPTI_ACTIVITY_KIND_{kind}"] for kind in ("KERNEL", "MEMCPY", "MEMSET")}
    communicates = capture.string(NCCL)
    kernels = [row for row in rows["KERNEL"] if row["demangledName"] != communicates]
    communication = [row for row in rows["KERNEL"] if row["demangledName"] == communicates]
    everything = [row for some in rows.values() for row in some]
    parts = dict.fromkeys(("compute", "exposed communication", "exposed memory operations", "idle"), 0)
    for t in range(min(row["start"] for row in everything), max(row["end"] for row in everything)):
        running = [any(row["start"] <= t < row["end"] for row in some) for some in (kernels, communication, everything)]
        parts[list(parts)[running.index(True) if any(running) else 3]] += 1
    return parts


@pytest.mark.parametrize("seed", range(15))
def test_the_parts_of_a_span_are_those_of_every_nanosecond(seed, tmp_path):
    random = np.random.default_rng(seed)
    capture = Synthetic()
    for at in random.integers(0, 300, 14).tolist():
        kind = random.integers(0, 4)
        where = {"start": at + 5, "duration": int(random.integers(0, 30)), "stream": int(random.integers(7, 10))}
        if kind < 2:
            capture.kernel([GEMM, NCCL][kind], at, **where)
        else:
            [capture.memcpy, capture.memset][kind - 2](at, **where)
    with Trace(capture.write(tmp_path / "capture.sqlite")) as trace:
        assert Scope(trace).parts_ns == moments_by_part(capture)


def test_parts_that_do_not_add_up_are_refused(monkeypatch):
    one = np.array([0]), np.array([10])
    device = Device(0, 0, np.array([0]), *one, 0, 10)
    none = np.array([False])
    assert device.parts_ns(none, none)["compute"] == 10
    monkeypatch.setattr("kernel_tables.diagnosis.devices.difference", lambda *_: device.time_of(np.array([True])))
    with pytest.raises(NotConserved, match="10 ns of device 0"):
        device.parts_ns(none, none)


@pytest.mark.parametrize("seed", range(50))
def test_gaps_take_in_turn_what_the_host_was_held_up_and_no_gap_has_taken(seed):
    random = np.random.default_rng(seed)
    gap_ns, held_up_ns = random.integers(0, 20, 30), random.integers(0, 20, 30) * random.integers(0, 2, 30)
    left, taken = 0, []
    for gap, held_up in zip(gap_ns.tolist(), held_up_ns.tolist(), strict=True):
        taken.append(min(gap, left + held_up))
        left += held_up - taken[-1]
    assert claims(gap_ns, held_up_ns).tolist() == taken


def test_every_nanosecond_of_a_gap_has_one_cause(tmp_path):
    program = Program()
    program.launch(GEMM, 50)
    program.pause(2000)
    program.launch(GEMM, 10)
    program.wait()
    program.pause(100)
    program.launch(GEMM, 10)
    with Trace(program.capture.write(tmp_path / "capture.sqlite")) as trace:
        scope = Scope(trace)
        idle = idle_of(scope, Blocking(scope), scope.devices[0])
        lengths_ns = scope.devices[0].gaps[0].lengths_ns
    by_cause = {cause: ns.tolist() for cause, ns in idle.ns_by_cause.items() if ns.any()}
    waited_ns = 12_000 + 2_000  # in the call until the kernel ended, and 2 us until it returned
    assert by_cause == {
        HOST: [lengths_ns[0], 0],
        "idle_sync": [0, waited_ns],
        LAUNCHING: [0, lengths_ns[1] - waited_ns],
    }


def test_what_several_threads_wait_at_once_counts_once(tmp_path):
    capture = Synthetic().range("step", 0, 100_000)
    for number in range(20):
        capture.kernel(GEMM, at=number * 5000, start=number * 5000 + 1000, duration=500)
        for thread in range(1, 9):
            capture.call(
                number * 5000 + 1600, 1000 + 10 * number + thread, thread, api="cudaStreamSynchronize", duration=3000
            )
    with Trace(capture.write(tmp_path / "capture.sqlite")) as trace:
        said = {one.code: one for one in diagnose(trace)}
    assert 0 < said["sync_in_step"].gain_percent <= 100
    assert said["sync_in_step"].evidence["host_ms"] == pytest.approx(
        19 * 0.003
    )  # the last kernel ends before the last calls
