"""Steps that differ: what slow ones do more often is said, and of the same work on the CPU nothing."""

import pytest

from kernel_tables.diagnosis.diagnose import Diagnosis, diagnose
from kernel_tables.trace import Trace
from tests.kernel_tables.diagnosis.program import GEMM, MUL, NCCL, Program
from tests.kernel_tables.synthetic import Synthetic


def said_of(capture: Synthetic, tmp_path, code: str = "unsteady_steps") -> Diagnosis | None:
    with Trace(capture.write(tmp_path / "capture.sqlite")) as trace:
        return next((one for one in diagnose(trace) if one.code == code), None)


def evaluating(steps: int, name: str = "evaluation", passes: int = 3) -> Synthetic:
    """Steps of which the second one evaluates too."""
    program = Program()
    for number in range(steps):
        with program.range("step"):
            program.pause(1)
            for _ in range(2 + (passes if number == 1 and name == "forward" else 0)):
                with program.range("forward"):
                    program.launch(GEMM, 300)
            for _ in range(passes if number == 1 and name != "forward" else 0):
                with program.range(name):
                    program.launch(GEMM, 300)
            program.pause(1)
    return program.capture


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("evaluation", "evaluation runs 3 times there, and not in the others"),
        ("forward", "forward runs 5 times there, and 2 times in the others"),
    ],
)
@pytest.mark.parametrize("steps", [3, 8])
def test_a_slow_step_is_explained_by_what_it_runs_more_often_even_among_three(steps, name, what, tmp_path):
    said = said_of(evaluating(steps, name), tmp_path)
    assert not said.abstained
    assert said.message.startswith(f"1 of {steps} steps takes more than 1.25 times the median of 60")
    assert said.message.endswith(what)
    assert said.gain_ms == pytest.approx(0.9 / steps, rel=0.05)


def test_of_two_slow_steps_the_one_that_evaluates_is_told_from_the_other(tmp_path):
    program = Program()
    for number in range(8):
        with program.range("step"):
            program.launch(GEMM, 1500 if number == 5 else 600)
            for _ in range(3 if number == 2 else 0):
                with program.range("inference"):
                    program.launch(GEMM, 300)
    said = said_of(program.capture, tmp_path)
    assert said.message.startswith("2 of 8 steps take more than")
    assert said.message.endswith("inference runs 3 times in 1 of them, and not in the others")


def test_of_few_steps_of_the_same_work_nothing_is_told_but_why(tmp_path):
    said = said_of(evaluating(3, passes=0), tmp_path)
    assert said.message.startswith("only 3 steps were recorded, and it takes 6 to tell a slow step from chance")


def on_cpu(*lengths_ms: int) -> Synthetic:
    """Steps of two operators that take so long."""
    capture, at = Synthetic(), 0
    for length in lengths_ms:
        capture.range("step", at, at + 2_000_000 * length)
        for half in range(2):
            start = at + half * 1_000_000 * length
            capture.kernel("aten::mm", at=start + 1, start=start + 1, duration=900_000 * length, device=-1)
        at += 2_000_000 * length
    return capture


def test_on_the_cpu_the_same_work_may_take_longer_for_other_programs_sake_and_is_no_finding(tmp_path):
    assert said_of(on_cpu(10, 10, 10, 30, 10, 10, 20, 20), tmp_path) is None


def test_on_the_cpu_a_step_with_a_few_more_operators_is_slow_by_chance_and_one_with_many_is_not(tmp_path):
    few, many = on_cpu(10, 10, 10, 30, 10, 10), on_cpu(10, 10, 10, 30, 10, 10)
    for capture, step_operators, more in ((few, 20, 2), (many, 2, 2)):
        for start in (0, 20, 40, 60, 120, 140):
            count = step_operators - 2 + more * (start == 60)
            for at in range(count):
                begin = 1_000_000 * start + 9_500_000 + 1_000 * at
                capture.kernel("aten::add", at=begin, start=begin, duration=900, device=-1)
    assert said_of(few, tmp_path) is None
    said = said_of(many, tmp_path)
    assert said.message.endswith("they do more work: 4 operators, and the others 2")
    assert said.advice.endswith("record steps without it (record --skip)")


def test_communication_alone_is_found_on_the_cpu_too(tmp_path):
    capture = Synthetic().range("step", 0, 1_000_000)
    capture.kernel("aten::mm", at=10, start=10, duration=500_000, device=-1)
    capture.kernel(NCCL, at=600_000, start=600_000, duration=300_000, device=-1)
    assert said_of(capture, tmp_path, "exposed_communication").gain_ms == pytest.approx(0.3)


def test_a_stream_that_is_used_outside_of_the_steps_alone_is_no_stream_of_theirs(tmp_path):
    program = Program()
    program.launch(MUL, 300, stream=9)
    program.pause(1_000)
    for _ in range(3):
        with program.range("step"):
            for _ in range(4):
                program.launch(MUL, 300)
    said = said_of(program.capture, tmp_path, "unfused_elementwise")
    assert said.evidence["kernels_per_step"] == 4
