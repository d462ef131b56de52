"""When the rules of the diagnosis abstain, which of several reports, what their gains are of, and users' own rules.

That each rule finds its planted fault, and nothing else, is tested with the captures of tests/golden.
"""

from contextlib import nullcontext
from pathlib import Path

import pytest

import kernel_tables
from kernel_tables.diagnose import (
    CODES,
    RULES,
    RULES_WITH_IDLE_TIME,
    Diagnosis,
    as_table,
    diagnose,
    rules_of_entries,
    rules_of_file,
)
from kernel_tables.errors import WINDOW_KEY, TraceError
from kernel_tables.steps import Scope, step_time
from tests.kernel_tables.program import FLASH, GEMM, MUL, SOFTMAX, Program
from tests.kernel_tables.synthetic import Synthetic

CAPTURES = Path(__file__).parents[1] / "captures"
NEXT = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def said_of(made: Program | Synthetic, folder: Path, **options) -> dict[str, Diagnosis]:
    path = getattr(made, "capture", made).write(folder / "capture.sqlite")
    with kernel_tables.read(path) as profile:
        return {finding.code: finding for finding in diagnose(profile, **options)}


def reported(said: dict[str, Diagnosis]) -> set[str]:
    return {code for code, finding in said.items() if not finding.abstained}


def launch(program: Program, names: list[str], us: float | None = None) -> None:
    for name in names:
        program.launch(name, us or (200 if name == GEMM else 100))


@pytest.mark.parametrize(("code", "tiny", "updates"), [("unfused_optimizer", 0, 300), ("small_kernels", 400, 0)])
def test_of_several_rules_that_could_report_the_same_time_the_one_that_names_its_cause_does(
    code, tiny, updates, tmp_path
):
    """An optimizer that launches late; tiny kernels in a row, before the host waits at the end of each step."""
    program = Program()
    for _ in range(8):
        with program.range("step"):
            launch(program, [GEMM] * 4, 300)
            for _ in range(tiny):
                program.launch(MUL, 0.9, 8)
            launch(program, [GEMM] * 8, 300)
            with program.range("optimizer"):
                for _ in range(updates):
                    program.launch(MUL, 3, 30)
        if tiny:
            program.wait()
    assert reported(said_of(program, tmp_path)) == {code}


SOFTMAX_BACKWARD, LOG_SOFTMAX = SOFTMAX.replace("Forward", "Backward"), SOFTMAX + "<LogSoftMaxForwardEpilogue>"
REDUCE = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MaxOps<float>, unsigned, 4>>"
EXP = "void at::native::vectorized_elementwise_kernel<4, at::native::exp_kernel_cuda(at::TensorIteratorBase&)>(int)"
TOPK = "void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>(at::cuda::detail::TensorInfo<float>)"
COPY = "void at::native::elementwise_kernel<128, 4, at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>(int)"
WRITTEN_OUT = [REDUCE, MUL, EXP, REDUCE, MUL]
ATTENTION = {  # kernels of the forward and of the backward pass; ms that are found
    "a softmax": ([GEMM, MUL, SOFTMAX, GEMM], [GEMM], 0.6 + 0.2),  # at most all of the backward pass
    "a softmax written out": ([GEMM, *WRITTEN_OUT, GEMM], [GEMM] * 20, 0.9 + 2.5 * 0.9),
    "its backward pass": ([GEMM, SOFTMAX, GEMM], [GEMM, GEMM, SOFTMAX_BACKWARD, MUL, GEMM, GEMM], 1.5),
    "a fused kernel": ([GEMM, MUL, FLASH, GEMM], [GEMM], 0),
    "cross entropy": ([GEMM, LOG_SOFTMAX, MUL, GEMM], [GEMM], 0),
    "copies of heads": ([MUL, COPY, COPY, GEMM, SOFTMAX, COPY, GEMM, COPY], [GEMM], 0.9 + 0.2),
    "a router of experts": ([GEMM, SOFTMAX, TOPK, MUL, GEMM], [GEMM], 0),
    "a loss and its backward pass": ([GEMM, *WRITTEN_OUT], [GEMM], 0),
}


@pytest.mark.parametrize("case", ATTENTION)
def test_attention_is_found_by_what_is_launched_under_any_name_and_nothing_else_is(case, tmp_path):
    forward, backward, ms = ATTENTION[case]
    program = Program()
    with program.range("step"):
        for phase, names in (("GPT", forward), ("backward", backward)):
            with program.range(phase), program.range("layers"), program.range("mixer"):
                launch(program, names)
        launch(program, [GEMM, *WRITTEN_OUT, GEMM])  # outside of the model
    said = said_of(program, tmp_path).get("unfused_attention")
    assert bool(said) == bool(ms)
    assert not said or said.gain_ms == pytest.approx(ms)


def test_a_wait_at_the_beginning_of_the_window_counts_for_its_rule():
    with kernel_tables.read(CAPTURES / "loader_and_graph_2025.3.1.sqlite.gz") as profile:
        (found,) = [one for one in profile.diagnose() if one.code == "copy_in_step"]
    assert found.gain_ms == pytest.approx(0.233885)


def test_an_optimizer_with_a_closure_that_runs_the_model_is_not_judged(tmp_path):
    program = Program()
    with program.range("step"), program.range("Optimizer.step#AdamW.step"):
        launch(program, [GEMM] * 10 + [MUL] * 100, 15)
    said = said_of(program, tmp_path)["unfused_optimizer"]
    assert said.abstained and said.message.startswith("the optimizer's range also holds work of a model")


def loading(before_s: float, waiting_us: float, pausing_us: float) -> Program:
    """Steps with a millisecond of kernels, which took so many seconds before recording, and wait for data."""
    program = Program()
    for _ in range(8):
        with program.range("step"):
            with program.range(NEXT):
                program.pause(waiting_us)
            program.pause(pausing_us)
            launch(program, [GEMM] * 10, 100)
    program.capture.metadata(WINDOW_KEY, f'{{"step_before_s": {before_s}}}')
    return program


@pytest.mark.parametrize("before_ms", [2.5, 0.9, 60])
def test_gains_are_of_a_step_before_recording_which_leaves_less_idle_time_on_a_gpu(before_ms, tmp_path):
    path = loading(before_ms / 1e3, 4000, 1).capture.write(tmp_path / "capture.sqlite")
    with kernel_tables.read(path) as profile:
        time, (said,) = step_time(Scope(profile)), [one for one in diagnose(profile) if not one.abstained]
    if before_ms == 2.5:
        assert "; 2.50 ms before recording): kernels" in time.sentence
        assert (said.gain_ms, said.gain_percent) == (pytest.approx(1.5), pytest.approx(60))  # what the kernels leave
        assert "fixing it saves at most 60 % of a step before recording. To" in said.sentence(time.percent_base)
    else:  # shorter than its kernels, or longer than a recorded step: no base
        assert said.gain_ms == pytest.approx(7 / 8 * (4 + 0.05 + 0.004 - 1) + 1 / 8 * 4, rel=0.02)
        assert time.before_ns is None and said.gain_percent == pytest.approx(100 * said.gain_ms * 1e6 / time.ns)


def test_workers_of_a_loader_may_save_all_idle_time_of_a_step_before_recording_which_slows_the_rest(tmp_path):
    said = said_of(loading(0.003, 2000, 1500), tmp_path)["waiting_for_data"]
    assert (said.gain_ms, said.gain_percent) == (pytest.approx(2), pytest.approx(200 / 3))


# Abstentions, users' rules, documents


def test_what_a_capture_lacks_is_said(tmp_path):
    def message(capture: Synthetic, code: str, **lacking) -> str:
        path = capture.write(tmp_path / "capture.sqlite", **lacking)
        with kernel_tables.read(path) as profile:
            return {one.code: one.message for one in diagnose(profile) if one.abstained}[code]

    capture = Synthetic().range("batch", 0, 100).kernel(GEMM, at=10).memcpy(at=20, size=1 << 20, source=0, target=2)
    assert message(capture, "sync_in_step").endswith("in a range 'step': name the range of one step with --step-name")
    for code, column in (("pageable_copy", "MEMCPY.srcKind"), ("launch_bound", "RUNTIME.nameId")):
        assert "the capture lacks" in message(capture, code, lacking=(f"CUPTI_ACTIVITY_KIND_{column}",))
    operator = Synthetic().metadata("CAPTURE_BACKEND", "torch").kernel("aten::mul", at=0, start=0, device=-1)
    assert message(operator, "launch_bound") == "the program ran on the CPU, without a GPU"
    with kernel_tables.read(CAPTURES / "tiny_2022.4.2.sqlite.gz") as profile:
        assert [one.code for one in diagnose(profile) if one.abstained] == list(CODES)


def test_a_users_rule_reports_from_its_share_on(tmp_path):
    program = Program()
    with program.range("step"):
        launch(program, [MUL, GEMM, MUL, GEMM], 100)
    rule = {"code": "slow_products", "kernel": "MulFunctor", "range": "step", "share": 0.2, "advice": "fuse them"}
    (file := tmp_path / "rules.toml").write_text("[[rule]]\n" + "\n".join(f"{k} = {v!r}" for k, v in rule.items()))
    said = said_of(program, tmp_path, rules=rules_of_file(file))["slow_products"]
    assert (said.gain_ms, said.advice, said.sure) == (pytest.approx(0.2), "fuse them", "possible")
    for silent in ({"share": 0.9}, {"launches": 3}, {"class": "gemm"}, {"range": "backward"}):
        assert "slow_products" not in said_of(program, tmp_path, rules=rules_of_entries([rule | silent], "here"))
    file.write_text("nonsense")
    with pytest.raises(TraceError, match="no TOML"):
        rules_of_file(file)


def test_a_users_rule_that_cannot_be_used_is_refused_with_its_place():
    for changed, message in (
        ({"call": "cudaMemcpy"}, "unknown field `call`"),
        ({"code": "idle_host"}, "two rules 'idle_host'"),
        ({"code": "No Code"}, r"matching regex .* - at `\$\[0\].code"),
        ({"share": 2}, r"<= 1.0 - at `\$\[0\].share"),
        ({"share": "much"}, r"Expected `float`, got `str` - at `\$\[0\].share"),
        ({"kernel": "(a"}, "unterminated subpattern"),
        ({"advice": ""}, r"length >= 1 - at `\$\[0\].advice"),
    ):
        rule = {"code": "mine", "kernel": "x", "share": 0.1, "advice": "do"} | changed
        with pytest.raises(TraceError, match=rf"config.yaml.*{message}"):
            rules_of_entries([rule], "config.yaml")


def test_the_page_of_finding_codes_lists_the_rules_with_their_advice():
    page = (Path(__file__).parents[2] / "docs" / "finding-codes.md").read_text(encoding="utf-8")
    assert [rule.code for rule in RULES if f"| `{rule.code}` | " not in page or rule.advice not in page] == []
    assert set(RULES_WITH_IDLE_TIME) <= set(CODES)
    assert list(as_table([]).columns)[:3] == ["code", "message", "abstained"]


# Whose time it is


def found_in(name):
    with kernel_tables.read(Path(__file__).parent / "reports" / f"{name}.json.gz") as profile:
        findings = {one.code: one for one in profile.diagnose() if not one.abstained}
        return findings, step_time(Scope(profile)).parts_ns


def test_a_gap_in_which_the_profiler_was_busy_is_no_finding():
    findings, parts = found_in("overhead")
    assert "idle_host" not in findings
    assert parts["idle, the profiler's own time"] == 4_800_000 / 6


def test_a_stream_that_waits_for_a_host_function_is_named_with_it():
    findings, _ = found_in("hostnode")
    assert findings["host_function"].message.endswith(" (ncclHostCallback)")
    assert findings["host_function"].gain_ms == pytest.approx(4.0) and "waiting_for_data" not in findings


def test_what_an_evaluation_waits_for_is_no_waiting_of_a_training_step():
    findings, parts = found_in("valloader")
    assert not findings and parts["idle, an evaluation waiting for data"] == 900_000


def test_what_the_steps_of_an_evaluation_itself_wait_for_is_lost(tmp_path):
    program = Program()
    with program.range("testing"):
        evaluate(program, 8, "test_step")
    assert "waiting_for_data" in reported(said_of(program, tmp_path, step_name="test_step"))


@pytest.mark.parametrize("name", ["", "validate"])
def test_nor_is_it_between_two_steps(name, tmp_path):
    program = Program()
    for number in range(8):
        with program.range("step"):
            launch(program, [GEMM] * 10)
        with program.range(NEXT):
            program.pause(10)
        if number == 3:
            with program.range(name) if name else nullcontext():
                evaluate(program, 4, "batch")
    assert reported(said_of(program, tmp_path)).isdisjoint({"waiting_for_data", "idle_host"})


def evaluate(program: Program, batches: int, name: str) -> None:
    for _ in range(batches):
        with program.range(name):
            with program.range(NEXT):
                program.pause(1500)
            launch(program, [GEMM] * 3)


def test_checkpoints_are_named_with_what_they_compute_again(tmp_path):
    capture = Synthetic().range("step", 0, 1000).range("backward", 400, 900).range("recomputation", 500, 700)
    capture.kernel("gemm", at=10, start=20, duration=300).kernel("gemm", at=510, start=520, duration=200)
    capture.kernel("gemm", at=710, start=720, duration=280)
    said = said_of(capture, tmp_path)["recomputation"]
    assert said.sure == "possible" and said.gain_percent >= 20 and "memory" in said.advice


def test_a_fix_saves_at_most_the_idle_time_and_its_own_kernels_of_a_step_before_recording(tmp_path):
    capture = Synthetic().metadata(WINDOW_KEY, '{"step_before_s": 700e-9}')
    capture.range("step", 0, 1000).range("optimizer", 0, 1000)
    for number in range(30):
        capture.kernel("mul", at=30 * number, start=30 * number + 10, duration=10)
    capture.kernel("gemm", at=901, start=905, duration=95)
    said = said_of(capture, tmp_path)
    assert all(said[code].gain_ms <= 700 / 1e6 for code in reported(said))  # what the 95 ns of gemm leave, and these
