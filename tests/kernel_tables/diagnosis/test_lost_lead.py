"""What calls cost that wait for the GPU: also what the host, which was ahead of it, could hide before."""

import pytest

from kernel_tables.diagnosis.diagnose import diagnose
from kernel_tables.trace import Trace
from tests.kernel_tables.diagnosis.program import GEMM, Program

RECORDED, MANY = 6, 30


def emptying(steps: int, pause_us: float, *, empties: bool = True) -> Program:
    """empty_cache() in every step of a program whose host would be ahead, though it launches slowly at first.

    The GPU has nothing to do when the program begins, as in a window of the recorder.
    """
    program = Program()
    for _ in range(steps):
        with program.range("step"):
            if empties:
                program.free()
            for _ in range(4):
                program.allocate(100) if empties else None
            program.pause(pause_us)
            for _ in range(40):
                program.launch(GEMM, 20, host=60)
            for _ in range(60):
                program.launch(GEMM, 100)
    return program


def span_ms(program: Program) -> float:
    kernels = program.capture.rows["CUPTI_ACTIVITY_KIND_KERNEL"]
    return (max(row["end"] for row in kernels) - min(row["start"] for row in kernels)) / 1e6


@pytest.mark.parametrize("pause_us", [0, 2500], ids=["launches", "a pause"])
def test_the_bound_of_empty_cache_holds_for_what_a_host_ahead_of_the_gpu_hides(pause_us, tmp_path):
    gained_ms = (span_ms(emptying(MANY, pause_us)) - span_ms(emptying(MANY, pause_us, empties=False))) / MANY
    with Trace(emptying(RECORDED, pause_us).capture.write(tmp_path / "capture.sqlite")) as trace:
        said = {one.code: one for one in diagnose(trace) if not one.abstained}
    assert gained_ms <= said["allocation_in_step"].gain_ms < 1.25 * gained_ms
    assert " more because the host is then no longer ahead of it" in said["allocation_in_step"].message
