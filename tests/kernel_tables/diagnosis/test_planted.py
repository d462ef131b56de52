"""A program with one fault planted: the rule of that fault speaks, and no other. One without: none speaks."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kernel_tables.diagnosis.diagnose import Diagnosis, diagnose
from kernel_tables.diagnosis.rules import CODES, RULES
from kernel_tables.trace import Trace
from tests.kernel_tables.diagnosis.program import ADAM, CAST, FLASH, GEMM, MUL, NCCL, SGEMM, SOFTMAX, Program

STEPS = 8
ONLY_WITH_COUNTERS = {"low_occupancy", "wave_tail"}


def training(
    in_step: Callable = lambda p, number: None,
    between: Callable = lambda p: None,
    gemm: str = GEMM,
    attention: Callable = lambda p: p.launch(FLASH, 100),
    optimizer: Callable = lambda p: p.launch(ADAM, 60),
    host: float = 5,
    kernel: float = 100,
) -> Program:
    """A training loop in which the host is far ahead of the GPU, with a fault IN_STEP, BETWEEN steps or in a part."""
    program = Program()
    for number in range(STEPS):
        with program.range("step"):
            with program.range("forward"):
                for _ in range(4):
                    program.launch(gemm, kernel, host)
                in_step(program, number)
                with program.range("scaled dot product attention"):
                    attention(program)
                program.launch(gemm, kernel, host)
            with program.range("backward"):
                for _ in range(6):
                    program.launch(gemm, kernel, host)
            with program.range("optimizer"):
                optimizer(program)
        between(program)
    return program


def several_items(program: Program, number: int) -> None:
    for _ in range(4):
        program.item()
        program.pause(30)
        program.launch(GEMM, 100)


def written_out_attention(program: Program) -> None:
    for name in (GEMM, MUL, SOFTMAX, GEMM):
        program.launch(name, 100)


def written_out_optimizer(program: Program) -> None:
    for _ in range(110):
        program.launch(MUL, 3)


def slow_step(program: Program, number: int) -> None:
    program.launch(GEMM, 3000 if number == 3 else 1)
    program.wait()


def waiting(program: Program) -> None:
    with program.range("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"):
        program.pause(3000)


PLANTED = {
    "waiting_for_data": lambda: training(between=waiting),
    "launch_bound": lambda: training(host=40, kernel=20),
    "idle_host": lambda: training(between=lambda p: p.pause(3000)),
    "idle_sync": lambda: training(between=lambda p: (p.wait(), p.pause(120))),
    "idle_copy": lambda: training(between=lambda p: p.copy(8 << 20, 200)),
    "idle_allocation": lambda: training(between=lambda p: p.reallocate(150)),
    "small_kernels": lambda: training(in_step=lambda p, _: p.replay([GEMM] * 120, 3, 1)),
    "sync_in_step": lambda: training(in_step=several_items),
    "copy_in_step": lambda: training(in_step=lambda p, _: p.copy(8 << 20, 200)),
    "pageable_copy": lambda: training(in_step=lambda p, _: (p.copy(8 << 20, 400, pageable=True), p.wait())),
    "allocation_in_step": lambda: training(in_step=lambda p, _: p.reallocate(150)),
    "unfused_elementwise": lambda: training(in_step=lambda p, _: [p.launch(MUL, 50) for _ in range(5)]),
    "casts": lambda: training(in_step=lambda p, _: [p.launch(CAST, 60) for _ in range(2)]),
    "no_tensor_cores": lambda: training(gemm=SGEMM),
    "unfused_attention": lambda: training(attention=written_out_attention),
    "unfused_optimizer": lambda: training(optimizer=written_out_optimizer),
    "exposed_communication": lambda: training(in_step=lambda p, _: p.launch(NCCL, 300, stream=9)),
}


MENDED = dict.fromkeys(PLANTED, training) | {
    "launch_bound": lambda: training(kernel=20),
    "sync_in_step": lambda: training(in_step=lambda p, _: [p.launch(GEMM, 100) for _ in range(4)]),
    "unfused_elementwise": lambda: training(in_step=lambda p, _: p.launch(MUL, 50)),
    "no_tensor_cores": lambda: training(kernel=13),
}


def span_ms(program: Program) -> float:
    kernels = program.capture.rows["CUPTI_ACTIVITY_KIND_KERNEL"]
    return (max(row["end"] for row in kernels) - min(row["start"] for row in kernels)) / 1e6


def said_of(program: Program, folder: Path) -> dict[str, Diagnosis]:
    with Trace(program.capture.write(folder / "capture.sqlite")) as trace:
        return {one.code: one for one in diagnose(trace)}


def speaking(said: dict[str, Diagnosis]) -> set[str]:
    return {code for code, one in said.items() if not one.abstained}


@pytest.mark.parametrize("code", PLANTED)
def test_a_planted_fault_is_found_and_nothing_else(code, tmp_path):
    said = said_of(PLANTED[code](), tmp_path)
    assert speaking(said) == {code}
    assert 0 < said[code].gain_percent <= 100
    assert said[code].evidence
    assert said[code].where["kernels"]


@pytest.mark.parametrize("code", PLANTED)
def test_mending_a_planted_fault_gains_no_more_than_was_said(code, tmp_path):
    planted = PLANTED[code]()
    gained_ms = (span_ms(planted) - span_ms(MENDED[code]())) / STEPS
    assert 0 < gained_ms <= said_of(planted, tmp_path)[code].gain_ms + 1e-9


def test_steps_that_are_not_alike_are_found_and_nothing_else(tmp_path):
    said = said_of(training(in_step=slow_step), tmp_path)
    assert speaking(said) == {"unsteady_steps"}


def test_a_slow_step_that_takes_little_of_the_whole_is_not_worth_a_word(tmp_path):
    program = training(in_step=lambda p, number: p.launch(GEMM, 450 if number == 3 else 1))
    assert speaking(said_of(program, tmp_path)) == set()


def test_a_slow_second_half_is_told_from_a_tenth_on_as_its_steps_beside_the_others(tmp_path):
    def slower_by(us: float):
        return training(in_step=lambda p, number: p.launch(GEMM, us if number >= STEPS // 2 else 1))

    assert speaking(said_of(slower_by(80), tmp_path)) == set()
    said = said_of(slower_by(400), tmp_path)
    assert speaking(said) == {"unsteady_steps"}
    assert said["unsteady_steps"].gain_ms == pytest.approx(0.399 / 2, rel=0.01)


ONE_OF_SEVERAL = {
    "steps that differ in how long they allocate": (
        "allocation_in_step", lambda: training(in_step=lambda p, number: p.reallocate(150 if number % 3 else 5000)),
    ),
    "steps that differ in how late they launch": (
        "launch_bound", lambda: training(in_step=lambda p, number: [p.launch(GEMM, 5, 100 * number) for _ in range(6)]),
    ),
    "memory that is freed between steps and allocated in them": (
        "idle_allocation", lambda: training(in_step=lambda p, _: p.allocate(800), between=lambda p: p.free()),
    ),
    "tiny elementwise kernels in a row": (
        "small_kernels", lambda: training(in_step=lambda p, _: p.replay([MUL] * 120, 3, 1)),
    ),
    "an optimizer of few elementwise kernels": (
        "unfused_optimizer", lambda: training(optimizer=lambda p: [p.launch(MUL, 20) for _ in range(24)]),
    ),
}  # fmt: skip


def tiny_kernels(program: Program, number: int) -> None:
    for _ in range(400):
        program.launch(MUL, 0.9, host=8)


def test_many_tiny_kernels_are_the_cause_though_the_host_waits_at_the_end_of_each_step(tmp_path):
    planted = training(in_step=tiny_kernels, between=Program.wait, kernel=300)
    said = said_of(planted, tmp_path)
    assert speaking(said) == {"small_kernels"}
    gained_ms = (span_ms(planted) - span_ms(training(between=Program.wait, kernel=300))) / STEPS
    assert 0.9 * said["small_kernels"].gain_ms < gained_ms <= said["small_kernels"].gain_ms


def test_memory_that_goes_back_to_the_driver_in_every_step_is_found_from_a_hundredth_on(tmp_path):
    planted = training(between=lambda p: p.reallocate(20), kernel=250)
    said = said_of(planted, tmp_path)
    assert speaking(said) == {"idle_allocation"}
    assert 1 < said["idle_allocation"].gain_percent < 5
    assert "1 cudaFree, " in said["idle_allocation"].message


@pytest.mark.parametrize("fault", ONE_OF_SEVERAL)
def test_of_what_several_rules_could_say_the_one_that_names_the_cause_says_it(fault, tmp_path):
    code, made = ONE_OF_SEVERAL[fault]
    assert speaking(said_of(made(), tmp_path)) == {code}


def test_rules_leave_what_they_find_to_rules_that_there_are():
    assert {code for rule in RULES for code in (*rule.leaves_to, *rule.silent_where)} <= set(CODES)


def test_nothing_is_said_of_a_program_without_a_fault(tmp_path):
    said = said_of(training(), tmp_path)
    assert speaking(said) == set()
    assert set(said) == ONLY_WITH_COUNTERS | {"exposed_communication"}


def test_every_rule_that_needs_no_counters_has_its_fault_planted():
    assert {*PLANTED, "unsteady_steps"} == set(CODES) - ONLY_WITH_COUNTERS
