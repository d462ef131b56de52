"""What counts as the optimizer's: what it launches itself, whatever its closure runs inside its range."""

from contextlib import AbstractContextManager, nullcontext

import pytest

from kernel_tables.diagnosis.diagnose import Diagnosis, diagnose
from kernel_tables.trace import Trace
from tests.kernel_tables.diagnosis.program import GEMM, MUL, Program

STEPS, UPDATES = 3, 100
ADAM_STEP = "Optimizer.step#AdamW.step"


def said_of(program: Program, tmp_path) -> Diagnosis | None:
    with Trace(program.capture.write(tmp_path / "capture.sqlite")) as trace:
        return next((one for one in diagnose(trace) if one.code == "unfused_optimizer"), None)


def after_a_moment(program: Program) -> AbstractContextManager:
    """Later than the range around: of two that begin and end together, either is the outer one."""
    program.pause(1)
    return nullcontext()


def closure(program: Program, backward: str | None = "backward") -> None:
    """A model's passes, with a loss in no range of its own."""
    with program.range("LitModel"):
        for _ in range(10):
            program.launch(GEMM, 300)
    program.launch(MUL, 500)
    if backward is None:
        for _ in range(10):
            program.launch(GEMM, 600)
        return
    with program.range(backward), program.range("LitModel"):
        for _ in range(10):
            program.launch(GEMM, 600)


def update(program: Program) -> None:
    for _ in range(UPDATES):
        program.launch(MUL, 15)


def trained(closures: int, backward: str | None = "backward") -> Program:
    program = Program()
    for _ in range(STEPS):
        with program.range("step"), after_a_moment(program), program.range(ADAM_STEP):
            for _ in range(closures):
                closure(program, backward)
                if closures > 1:
                    update(program)
            if closures == 1:
                update(program)
    return program


@pytest.mark.parametrize("backward", ["backward", "[pl]Strategy.backward", "autograd::engine: MulBackward0"])
def test_what_a_closure_runs_inside_the_optimizer_is_not_the_optimizers(backward, tmp_path):
    said = said_of(trained(closures=1, backward=backward), tmp_path)
    assert said.evidence["running_ms"] == pytest.approx(UPDATES * 0.015)
    assert said.gain_percent == pytest.approx(100 * 1.5 / (3 + 0.5 + 6 + 1.5), rel=0.01)
    assert set(said.where["ranges"]) == {f"step > {ADAM_STEP}"}


def test_of_several_closures_only_what_follows_the_last_one_counts(tmp_path):
    said = said_of(trained(closures=3), tmp_path)
    assert said is None  # 1.5 ms of 33 are less than a twentieth
    alone = said_of(trained(closures=2), tmp_path)
    assert alone.evidence["running_ms"] == pytest.approx(UPDATES * 0.015)


def test_a_model_inside_the_optimizer_that_no_backward_range_separates_is_not_judged(tmp_path):
    said = said_of(trained(closures=1, backward=None), tmp_path)
    assert said.abstained
    assert said.message.startswith("the optimizer's range also holds work of a model")


def test_an_optimizer_that_runs_inside_a_backward_pass_is_judged(tmp_path):
    program = Program()
    for _ in range(STEPS):
        with program.range("step"), program.range("backward"):
            for _ in range(10):
                program.launch(GEMM, 600)
            with program.range(ADAM_STEP):
                update(program)
    assert said_of(program, tmp_path).evidence["running_ms"] == pytest.approx(UPDATES * 0.015)
