"""What `check` finds in captures that lost something, in those that are only odd, and in impossible ones."""

import json
from pathlib import Path

import pytest

import kernel_tables
from kernel_tables.__main__ import main
from kernel_tables.errors import IMPOSSIBLE, INCOMPLETE, ODD, Finding
from kernel_tables.output import code
from tests.kernel_tables.kineto_events import event, written
from tests.kernel_tables.synthetic import Synthetic, changed

KERNEL, NVTX, RUNTIME = "CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME"


@pytest.fixture
def codes(tmp_path):
    """A function: (errors, warnings) by code that `check` finds in a capture."""

    def codes_of(capture: Synthetic | Path, lacking: tuple[str, ...] = (), **options) -> tuple[list[str], list[str]]:
        path = capture if isinstance(capture, Path) else capture.write(tmp_path / "capture.sqlite", lacking=lacking)
        with kernel_tables.read(path) as profile:
            found = profile.check(**options)
        assert all("\n" not in finding.message for finding in found)
        return tuple([one.code for one in found if one.severity == severity] for severity in ("error", "warning"))

    return codes_of


def steps(*kernels_per_step: int) -> Synthetic:
    """Steps of 100 ns inside `measure`, each with so many kernels."""
    capture = Synthetic().range("measure", 0, 100 * len(kernels_per_step))
    for step, kernels in enumerate(kernels_per_step):
        capture.range("step", 100 * step, 100 * step + 90)
        for kernel in range(kernels):
            capture.kernel("gemm", at=100 * step + kernel)
    return capture


def closures(*calls_per_step: int, until=1_000_000) -> Synthetic:
    """Steps that call their closure so often. Each call takes 100 ns and launches four kernels in each of its parts;
    the step ends 10 ns after the last. Nothing of CUDA is recorded from `until` on."""
    capture, now = Synthetic(), 0
    for calls in calls_per_step:
        capture.range("step", now, now + 100 * calls + 10)
        for begin in range(now, now + 100 * calls, 50):
            capture.range(("forward", "backward")[begin // 50 % 2], begin, begin + 49)
            for at in range(begin, min(begin + 40, until), 10):
                capture.kernel("gemm", at=at)
        now += 100 * calls + 50
    return capture


def test_steps_with_fewer_kernels_than_their_twins_are_an_error_if_they_do_the_same_work(codes):
    for kernels in ((5, 5, 0), (5, 5, 4), (5, 2), (9, 8, 1)):
        assert codes(steps(*kernels), equal_steps=True)[0] == ["short_steps"]


def test_a_trace_that_stops_is_noticed_and_steps_that_call_their_closure_differently_have_lost_nothing(codes):
    for calls in ((5, 5, 3), (5, 5, 5, 1), (2, 1), (1, 6, 6)):
        assert codes(closures(*calls)) == ([], ["steps_vary"])
    for until in (160, 575, 1000, 1195):  # by ranges that open afterwards
        assert codes(closures(5, 3, 4, until=until))[0] == ["short_steps"]


ERRORS = [  # a capture, and the errors in it
    (steps(5, 5, 0), ["short_steps"]),
    (steps(0, 0).kernel("gemm", at=500), ["short_steps"]),
    (Synthetic().kernel("gemm", at=1), ["no_ranges"]),
    (steps(5, 5).call(20, 900), ["launches_without_kernels"]),
    (steps(5, 5).kernel("gemm", at=None, start=150), ["lost_launches"]),
    (steps(5, 5).kernel("gemm", at=None, start=150, correlation=0), ["lost_launches"]),
    (steps(5).kernel("gemm", at=2_000_000, start=900_000), ["starts_before_launch"]),
    (Synthetic().domain(1, "NCCL").range("x", 0, 9, domain=1).kernel("gemm", at=5), ["only_library_ranges"]),
    (steps(5, 5).diagnostic(2, "12 incomplete CUPTI events dropped"), ["nsys_lost_events"]),
    (steps(5, 5).diagnostic(3, "CUDA injection failed."), ["nsys_error"]),
]
WARNINGS = [  # a capture, and the warnings in it, which are all
    (steps(5, 5, 5), []),
    (steps(7, 5, 5, 5), ["steps_vary"]),
    (steps(5, 5).range("warmup", 1000, 1100).range("step", 1000, 1090), []),
    (Synthetic().metadata("CAPTURE_BACKEND", "torch").kernel("gemm", at=1), ["no_ranges"]),
    # Calls that launch nothing, or fail; launches into a graph that is being captured; a driver's call in another.
    (steps(5, 5).call(20, 900, api="cudaMalloc_v3020").call(21, 901, api="cudaLaunchHostFunc_v10000"), []),
    (steps(5, 5).call(22, 902, returned=2), []),
    (steps(5, 5).stream_capture(20, 40).call(30, 901), []),
    (steps(5).call(50, 9, duration=10).call(52, 10, api="cuLaunchKernel").kernel("gemm", at=50, correlation=9), []),
    (steps(5, 5).kernel("gemm", at=None, start=0, correlation=0), ["launched_before"]),
    (steps(5, 5).diagnostic(2, "Not all CUDA events might have been collected."), ["nsys_hedge"]),
    (steps(5, 5).diagnostic(2, "Something is old."), ["nsys_warning"]),
    (steps(5, 5).diagnostic(1, "CUPTI events dropped: 0").diagnostic(1, "Number of CUDA events collected: 12"), []),
    (steps(5, 5).range("open", 10, None), ["ranges_left_open"]),
]


def test_a_loss_is_an_error_and_what_is_odd_or_launches_nothing_is_none(codes):
    assert [codes(capture)[0] for capture, _ in ERRORS] == [errors for _, errors in ERRORS]
    assert [codes(capture) for capture, _ in WARNINGS] == [([], warnings) for _, warnings in WARNINGS]


def test_a_runtime_call_and_its_driver_call_without_a_kernel_are_one_lost_launch(tmp_path):
    capture = steps(5, 5).call(20, 900, duration=10).call(20, 901, api="cuLaunchKernel", duration=10).call(30, 902)
    with kernel_tables.read(capture.write(tmp_path / "capture.sqlite")) as profile:
        (finding,) = profile.check()
    assert finding.message.startswith("2 launches have no kernel")


def test_fewer_steps_than_expected_and_lost_tables_and_columns_of_calls_are_told(codes):
    assert codes(steps(5, 5), expected_steps=3)[0] == ["step_count"]
    assert codes(steps(5, 5), expected_steps=2) == ([], [])
    assert "no_api_calls" in codes(steps(5, 5), lacking=(RUNTIME,))[0]
    for column in ("nameId", "end"):
        found = codes(steps(5, 5).call(20, 900), lacking=(f"{RUNTIME}.{column}",))
        assert found == ([], ["calls_without_names"])


def test_steps_of_a_cpu_vary_and_have_lost_nothing(codes, tmp_path):
    operators = [event("cpu_op", "aten::mm", at, 5) for at in (10, 20, 110)]
    marks = [event("user_annotation", "step", at, 90) for at in (0, 100)]
    assert codes(written(tmp_path, *marks, *operators)) == ([], ["whole_microseconds", "steps_vary"])
    exact = event("cpu_op", "aten::mm", 120, 5.25)
    assert codes(written(tmp_path, *marks, *operators, exact)) == ([], [])


STATEMENTS = {  # by code: what makes a whole capture impossible
    "wrong_type": f"UPDATE {KERNEL} SET start = 'soon'",
    "no_time": f"UPDATE {KERNEL} SET start = NULL",
    "negative_time": f"UPDATE {NVTX} SET start = -5",
    "ends_before_start": f'UPDATE {NVTX} SET start = "end" + 1',
    "outside_capture": f'UPDATE {KERNEL} SET "end" = 1001',
    "longer_than_capture": "UPDATE ANALYSIS_DETAILS SET startTime = 900, duration = 100",
    "impossible_bounds": "UPDATE ANALYSIS_DETAILS SET stopTime = -1",
    "kernels_without_names": "DELETE FROM StringIds WHERE value = 'gemm'",
    "ranges_without_names": "DELETE FROM StringIds WHERE value = 'registered'",
    "times_overflow": f'UPDATE {KERNEL} SET start = 0, "end" = {2**61}',
}


@pytest.mark.parametrize("fault", IMPOSSIBLE)
def test_an_impossible_capture_is_refused_by_every_table_with_the_code_that_check_gives(tmp_path, capsys, fault):
    capture = steps(2, 2).range("registered", 5, 80, registered=True).lasting(0, 1000)
    for number in range(1500 if fault == "too_many_open_ranges" else 0):
        capture.range("leak", number % 900, None)
    lacking = ("ANALYSIS_DETAILS",) if fault == "times_overflow" else ()
    path = capture.write(tmp_path / "capture.sqlite", lacking=lacking)
    if fault in STATEMENTS:
        changed(path, STATEMENTS[fault])
    elif fault == "damaged_file":
        path.write_bytes(path.read_bytes()[:-4096] + bytes(4096))
    elif fault == "invalid_json":
        path.write_text('{"traceEvents": [')
    assert main(["check", "--format", "json", str(path)]) == 1
    errors = [row for row in json.loads(capsys.readouterr().out) if row["severity"] == "error"]
    assert {row["code"] for row in errors} == {fault}
    for command in ("kernels", "ranges", "classes", "diagnose", "host", "communication"):
        assert main([command, str(path)]) == 2
        printed, refusal = capsys.readouterr()
        assert printed == "" and errors[0]["message"] in refusal and refusal.count("\n") == 1, command


def test_a_finding_has_a_code_that_its_page_explains():
    groups = {"error, no tables": IMPOSSIBLE, "error": INCOMPLETE, "warning": ODD}
    rows = [f"| {severity} | {code(name)} | " for severity, codes in groups.items() for name in codes]
    page = (Path(__file__).parents[2] / "docs" / "finding-codes.md").read_text(encoding="utf-8")
    assert [row for row in rows if row not in page] == []
    with pytest.raises(ValueError, match="'new_code' is not one of CODES"):
        Finding("error", "new_code", "a message")
