"""What the diagnosis says of real captures, when its rules abstain, and rules of one's own."""

import json
import re
from pathlib import Path

import pytest

from kernel_tables import markdown
from kernel_tables.__main__ import main
from kernel_tables.diagnosis import needs
from kernel_tables.diagnosis.custom_rules import rules_of_entries, rules_of_file
from kernel_tables.diagnosis.diagnose import as_table, diagnose
from kernel_tables.diagnosis.rules import CODES, RULES
from kernel_tables.diagnosis.scope import Scope
from kernel_tables.diagnosis.step_time import step_time
from kernel_tables.errors import TraceError
from kernel_tables.terminal.findings import finding_lines
from kernel_tables.trace import Trace
from tests.kernel_tables.diagnosis.program import GEMM, MUL, SGEMM, Program
from tests.kernel_tables.synthetic import Synthetic

CAPTURES = Path(__file__).parents[2] / "captures"
OWN = """
[[rule]]
code = "slow_products"
kernel = "MulFunctor"
share = 0.2
advice = "fuse them"
"""


def test_the_diagnosis_of_a_real_capture_is_what_its_truth_says():
    with Trace(CAPTURES / "tiny_2025.3.1.sqlite.gz") as trace:
        said = {one.code: one for one in diagnose(trace)}
    assert [code for code, one in said.items() if not one.abstained] == ["launch_bound", "unfused_optimizer"]
    optimizer = said["unfused_optimizer"]
    assert optimizer.evidence["kernels_per_step"] == 1008 / 3
    assert optimizer.evidence["running_ms"] == pytest.approx(1.586542 / 3)
    assert optimizer.where["steps"] == [0, 1, 2]
    assert said["launch_bound"].gain_percent + optimizer.gain_percent <= 100
    few = "only 3 steps were recorded, and it takes 6 to tell a slow step from chance (`kernel-tables record --steps`)"
    assert said["unsteady_steps"].message == few


def test_a_capture_without_kernels_is_judged_by_no_rule():
    with Trace(CAPTURES / "tiny_2022.4.2.sqlite.gz") as trace:
        said = diagnose(trace)
    assert [one.code for one in said if one.abstained] == list(CODES)


def test_without_a_range_for_a_step_what_needs_one_abstains_and_names_the_option(tmp_path):
    capture = Synthetic().range("batch", 0, 100).kernel(GEMM, at=10)
    path = capture.write(tmp_path / "capture.sqlite")
    with Trace(path) as trace:
        abstained = {one.code: one.message for one in diagnose(trace) if one.abstained}
    assert abstained["sync_in_step"] == "no kernels ran in a range 'step': name the range of one step with --step-name"
    with Trace(path) as trace:
        assert "sync_in_step" not in {one.code for one in diagnose(trace, "batch")}


def test_of_a_capture_without_names_of_calls_and_kinds_of_memory_that_is_said(tmp_path):
    capture = Synthetic().range("step", 0, 100).kernel(GEMM, at=10).memcpy(at=20, size=1 << 20, source=0, target=2)
    lacking = ("CUPTI_ACTIVITY_KIND_MEMCPY.srcKind", "CUPTI_ACTIVITY_KIND_RUNTIME.nameId")
    for column, code in zip(lacking, ("pageable_copy", "launch_bound"), strict=True):
        with Trace(capture.write(tmp_path / "capture.sqlite", lacking=(column,))) as trace:
            abstained = {one.code: one.message for one in diagnose(trace) if one.abstained}
        assert "the capture lacks" in abstained[code]


def test_on_a_processor_what_asks_for_a_gpu_abstains_and_the_optimizer_is_judged(tmp_path):
    capture = Synthetic().range("step", 0, 4000).range("optimizer", 0, 4000)
    for number in range(120):
        capture.kernel("aten::mul", at=number * 20, start=number * 20, duration=15, device=-1)
    with Trace(capture.write(tmp_path / "capture.sqlite")) as trace:
        said = {one.code: one for one in diagnose(trace)}
    assert said["launch_bound"].message == "the program ran on the CPU, without a GPU"
    assert not said["unfused_optimizer"].abstained
    assert "the optimizer's many operators, and the time before each, take" in said["unfused_optimizer"].message


def test_of_two_processes_side_by_side_a_step_is_that_of_one_on_its_gpu(tmp_path):
    capture = Synthetic()
    for process in (1, 2):
        for number in range(8):
            at = number * 100_000
            capture.range("step", at, at + 100_000, process=process)
            for offset in (10, 50_000):
                where = {"start": at + offset + 10, "duration": 49_000, "process": process, "device": process}
                capture.kernel(SGEMM, at=at + offset, **where)
    with Trace(capture.write(tmp_path / "capture.sqlite")) as trace:
        said = {one.code: one for one in diagnose(trace)}
    assert said["no_tensor_cores"].gain_ms == pytest.approx(2 * 0.049)
    assert said["no_tensor_cores"].evidence["kernels_per_step"] == 2
    assert said["unsteady_steps"].message.startswith("the capture has steps of 2 processes side by side")


def products() -> Program:
    program = Program()
    with program.range("step"):
        for name in (MUL, GEMM, MUL, GEMM):
            program.launch(name, 100)
    return program


def test_a_rule_of_ones_own_speaks_from_its_share_on(tmp_path):
    path = products().capture.write(tmp_path / "capture.sqlite")
    (rules := tmp_path / "rules.toml").write_text(OWN)
    with Trace(path) as trace:
        (said,) = [one for one in diagnose(trace, custom_rules=rules_of_file(rules)) if one.code == "slow_products"]
        assert (said.gain_ms, said.advice) == (pytest.approx(0.2), "fuse them")
        dearer = rules_of_entries([{"code": "slow_products", "kernel": "Mul", "share": 0.9, "advice": "-"}], "here")
        assert "slow_products" not in {one.code for one in diagnose(trace, custom_rules=dearer)}


def test_a_rule_about_calls_counts_the_hosts_time_in_them_once_within_the_span_of_the_gpu(tmp_path):
    capture = Synthetic().range("step", 0, 1_000_000)
    for number, at in enumerate((0, 900_000)):  # the span is 0 to 1,000,000
        capture.call(at, number, duration=5_000).kernel(SGEMM, at=at + 10_000, duration=90_000, correlation=number)
    capture.call(200_000, 7, api="cudaMemGetInfo", duration=100_000)
    capture.call(250_000, 8, api="cudaMemGetInfo", duration=150_000).call(2_000_000, 9, api="cudaMemGetInfo")
    rule = {"code": "asks_memory", "call": "MemGetInfo$", "share": 0.15, "launches": 2, "advice": "ask once"}
    with Trace(capture.write(tmp_path / "capture.sqlite")) as trace:
        rules = rules_of_entries([rule], "here")
        (said,) = [one for one in diagnose(trace, custom_rules=rules) if one.code == "asks_memory"]
        silent = rules_of_entries([rule | {"launches": 3}], "here")
        assert "asks_memory" not in {one.code for one in diagnose(trace, custom_rules=silent)}
    assert (said.gain_ms, said.evidence["calls_per_step"]) == (pytest.approx(0.2), 2)
    assert said.gain_percent == pytest.approx(20, rel=1e-5)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"call": "cudaMemcpy"}, "it names a call and kernels"),
        ({"code": "casts"}, "two rules 'casts'"),
        ({"code": "No Code"}, "lower-case letters"),
        ({"share": 2}, "between 0 and 1"),
        ({"share": "much"}, "share = 'much' cannot be used"),
        ({"kernel": "(?=a)"}, "cannot be used"),
        ({"kernels": "x"}, "'kernels' is not known"),
        ({"advice": ""}, "advice = '' cannot be used"),
    ],
)
def test_a_rule_that_cannot_be_used_is_refused_with_its_place(changed, message):
    rule = {"code": "mine", "kernel": "x", "share": 0.1, "advice": "do"} | changed
    with pytest.raises(TraceError, match=message):
        rules_of_entries([rule], "config.yaml")


def test_the_command_gives_json_objects_and_tables(tmp_path, capfdbinary):
    path = products().capture.write(tmp_path / "capture.sqlite")
    (rules := tmp_path / "rules.toml").write_text(OWN)
    assert main(["diagnose", str(path), "--format", "json", "--rules", str(rules)]) == 0
    said = json.loads(capfdbinary.readouterr().out)
    assert said[0]["code"] == "slow_products"
    assert set(said[0]) >= {"code", "message", "evidence", "gain_ms", "abstained"}
    assert isinstance(said[0]["evidence"], dict)
    assert main(["diagnose", str(path), "-o", str(tmp_path / "said.csv")]) == 0
    assert "low_occupancy" in (tmp_path / "said.csv").read_text()
    rules.write_text("nonsense")
    assert main(["diagnose", str(path), "--rules", str(rules)]) == 2
    assert b"no TOML" in capfdbinary.readouterr().err


def test_a_person_at_a_terminal_reads_what_where_how_much_and_what_to_do():
    with Trace(CAPTURES / "tiny_2025.3.1.sqlite.gz") as trace:
        text = finding_lines(diagnose(trace), 80, step_time(Scope(trace)))
        everything = finding_lines(diagnose(trace), 80, lists_unchecked=True)
    lines = text.splitlines()
    assert lines[0].startswith("a step takes 20.6 ms (wall time, mean of 3): kernels 1.98 ms (9.6 %), ")
    assert lines[3] == "launch_bound: at most 13.1 ms (63.6 %), likely"
    assert "    in measure > step > optimizer 5.67 ms" in lines
    assert "    → compile the model (torch.compile), replay CUDA graphs, or give each launch" in lines
    assert lines[-1] == "4 rules need what this capture does not have; --all names them"
    assert "not checked: low_occupancy, wave_tail (no counters of Nsight Compute, which" in everything.splitlines()
    assert max(map(len, lines)) <= 80
    assert finding_lines([], 80) == "No rule finds anything.\n"


def test_a_diagnosis_of_nothing_has_its_columns():
    assert list(as_table([]).columns)[:3] == ["code", "message", "abstained"]


GPU_WORDS = re.compile(r"(?i)gpu|cuda|cudnn|nsys|nsight|nvlink|nvidia|kernel|stream|clock")


@pytest.mark.parametrize("rule", [one for one in RULES if needs.gpu not in one.needs], ids=lambda rule: rule.code)
def test_advice_for_a_program_without_a_gpu_speaks_of_none(rule):
    assert not GPU_WORDS.search(rule.advice_on_cpu or rule.advice)


def test_the_page_of_finding_codes_lists_the_rules_as_they_are():
    rows = []
    for rule in RULES:
        yields = ", ".join(map(markdown.code, (*rule.silent_where, *rule.leaves_to))) or "–"
        advice = rule.advice + (f"; without a GPU: {rule.advice_on_cpu}" if rule.advice_on_cpu else "")
        rows.append((markdown.code(rule.code), rule.looks_for, rule.threshold, rule.source, yields, advice))
    table = markdown.compact_table(("code", "looks for", "threshold", "source", "yields to", "advice"), rows)
    assert table in (Path(__file__).parents[3] / "docs" / "finding-codes.md").read_text(encoding="utf-8")
