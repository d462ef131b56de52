"""What `check` finds in captures that lost something, and in those that are only odd."""

import os
from pathlib import Path

import pytest

from kernel_tables.errors import IMPOSSIBLE, INCOMPLETE, ODD, Finding
from kernel_tables.kineto.capture_schema import CPU_DEVICE
from kernel_tables.markdown import code, compact_table
from kernel_tables.trace import Trace
from tests.kernel_tables.synthetic import Synthetic

CAPTURES = Path(__file__).parent.parent / "captures"


@pytest.fixture
def codes(tmp_path):
    """A function: (errors, warnings) by code that `check` finds in a capture."""

    def codes_of(capture: Synthetic, lacking: tuple[str, ...] = (), **options) -> tuple[list[str], list[str]]:
        with Trace(capture.write(tmp_path / "capture.sqlite", lacking=lacking)) as trace:
            found = trace.check(**options)
        assert all("\n" not in finding.message for finding in found)
        by_severity = [[f.code for f in found if f.severity == severity] for severity in ("error", "warning")]
        assert sum(map(len, by_severity)) == len(found)
        return tuple(by_severity)

    return codes_of


def steps(*kernels_per_step: int) -> Synthetic:
    """Steps of 100 ns inside `measure`, each with so many kernels."""
    capture = Synthetic().range("measure", 0, 100 * len(kernels_per_step))
    for step, kernels in enumerate(kernels_per_step):
        capture.range("step", 100 * step, 100 * step + 90)
        for kernel in range(kernels):
            capture.kernel("gemm", at=100 * step + kernel)
    return capture


def closures(*calls_per_step: int, parts=("forward", "backward"), until=1_000_000) -> Synthetic:
    """Steps that call their closure so often. Each call takes 100 ns and launches four kernels in each of its `parts`;
    the step ends 10 ns after the last. Nothing of CUDA is recorded from UNTIL on."""
    capture, now = Synthetic(), 0
    for calls in calls_per_step:
        capture.range("step", now, now + 100 * calls + 10)
        for begin in range(now, now + 100 * calls, 50):
            if parts:
                capture.range(parts[begin // 50 % 2], begin, begin + 49)
            for at in range(begin, min(begin + 40, until), 10):
                capture.kernel("gemm", at=at)
        now += 100 * calls + 50
    return capture


@pytest.mark.parametrize("name", ["tiny_2025.3.1", "tiny_2024.2.3"])
def test_complete_real_captures_have_no_error(name):
    with Trace(CAPTURES / f"{name}.sqlite.gz") as trace:
        assert [finding for finding in trace.check(expected_steps=3) if finding.severity == "error"] == []


def test_a_nsys_older_than_driver_is_a_warning():
    with Trace(CAPTURES / "tiny_2024.2.3.sqlite.gz") as trace:
        (finding,) = trace.check()
    assert (finding.severity, finding.code) == ("warning", "nsys_older_than_driver")
    assert "Installed CUDA driver version (13.0) is not supported" in finding.message


def test_a_capture_without_kernels_is_incomplete():
    with Trace(CAPTURES / "tiny_2022.4.2.sqlite.gz") as trace:
        assert [finding.code for finding in trace.check()] == ["no_kernels"]


def test_equal_steps_have_no_finding(codes):
    assert codes(steps(5, 5, 5), expected_steps=3) == ([], [])


@pytest.mark.parametrize("kernels", [(5, 5, 0), (5, 5, 4), (5, 2), (5, 0, 0), (9, 8, 1)])
def test_steps_with_fewer_kernels_than_their_twins_are_an_error_if_they_do_the_same_work(codes, kernels):
    assert codes(steps(*kernels), equal_steps=True)[0] == ["short_steps"]


@pytest.mark.parametrize("kernels", [(5, 5, 0), (5, 0, 0)])
def test_a_trace_that_stops_before_the_last_steps_is_an_error(codes, kernels):
    assert codes(steps(*kernels))[0] == ["short_steps"]


@pytest.mark.parametrize("calls", [(5, 5, 3), (5, 5, 5, 1), (3, 1, 4), (2, 1), (1, 6, 6)])
def test_steps_that_call_their_closure_differently_have_lost_nothing(codes, calls):
    assert codes(closures(*calls)) == codes(closures(*calls, parts=())) == ([], ["steps_vary"])


@pytest.mark.parametrize("until", [160, 300, 575, 745, 1000, 1195])
def test_a_trace_that_stops_is_noticed_by_the_ranges_that_open_afterwards(codes, until):
    assert codes(closures(5, 3, 4, until=until))[0] == ["short_steps"]


@pytest.mark.parametrize("until", [575, 745, 1000, 1095])
def test_a_trace_that_stops_is_noticed_by_the_time_without_calls(codes, until):
    assert codes(closures(5, 3, 4, parts=(), until=until))[0] == ["short_steps"]


def test_a_step_that_ends_with_long_work_of_the_host_has_lost_nothing(codes):
    capture = closures(3, 2).range("step", 1000, 2000)  # as one that evaluates little, and writes a checkpoint
    assert codes(capture.kernel("gemm", at=1000).call(1990, 900, api="cudaDeviceSynchronize"))[0] == []


def test_steps_without_any_kernel_are_an_error_where_kernels_ran_before(codes):
    assert codes(steps(0, 0).kernel("gemm", at=500))[0] == ["short_steps"]


def test_steps_of_a_processor_vary_and_have_lost_nothing(codes):
    capture = steps(5, 5, 5, 2)
    for kernel in capture.rows["CUPTI_ACTIVITY_KIND_KERNEL"]:
        kernel["deviceId"] = CPU_DEVICE
    assert codes(capture) == ([], ["steps_vary"])


def test_a_step_with_more_kernels_than_its_twins_is_a_warning_at_most(codes):
    assert codes(steps(7, 5, 5, 5)) == ([], ["steps_vary"])


def test_steps_of_the_warm_up_are_not_measured_steps(codes):
    capture = steps(5, 5)
    capture.range("warmup", 1000, 1100).range("step", 1000, 1090)
    assert codes(capture, expected_steps=2) == ([], [])


def test_fewer_steps_than_configured_are_an_error(codes):
    assert codes(steps(5, 5), expected_steps=3)[0] == ["step_count"]


def test_a_capture_without_ranges_is_incomplete(codes):
    assert codes(Synthetic().kernel("gemm", at=1)) == (["no_ranges"], [])


def test_a_program_that_opened_no_range_in_a_window_of_pytorchs_profiler_lost_nothing(codes):
    assert codes(Synthetic().metadata("CAPTURE_BACKEND", "torch").kernel("gemm", at=1)) == ([], ["no_ranges"])


def test_launches_whose_kernels_are_missing_are_an_error(codes):
    assert codes(steps(5, 5).call(20, 900)) == (["launches_without_kernels"], [])


@pytest.mark.parametrize("driver_correlation", [900, 901])
def test_a_runtime_call_and_its_driver_call_without_a_kernel_are_one_lost_launch(tmp_path, driver_correlation):
    capture = steps(5, 5).call(20, 900, duration=10)
    capture.call(20, driver_correlation, api="cuLaunchKernel", duration=10).call(30, 902)
    with Trace(capture.write(tmp_path / "capture.sqlite")) as trace:
        (finding,) = trace.check()
    assert finding.message.startswith("2 launches have no kernel")


def test_calls_that_launch_nothing_are_not_missed(codes):
    capture = steps(5, 5).call(20, 900, api="cudaMalloc_v3020").call(21, 901, api="cudaLaunchHostFunc_v10000")
    assert codes(capture.call(22, 902, returned=2)) == ([], [])


def test_launches_into_a_graph_being_captured_are_not_missed(codes):
    capture = steps(5, 5).call(20, 900, api="cudaStreamBeginCapture_v10000").call(30, 901)
    assert codes(capture.call(40, 902, api="cudaStreamEndCapture_v10000")) == ([], [])


def test_a_driver_call_inside_the_runtime_call_that_launched_is_not_missed(codes):
    capture = steps(5, 5).call(50, 900, duration=10).call(52, 901, api="cuLaunchKernel", duration=5)
    assert codes(capture.kernel("gemm", at=50, correlation=900).kernel("gemm", at=150)) == ([], [])


def test_kernels_launched_before_the_capture_are_a_warning(codes):
    assert codes(steps(5, 5).kernel("gemm", at=None, start=0, correlation=0)) == ([], ["launched_before"])


def test_kernels_whose_launch_within_the_capture_is_lost_are_an_error(codes):
    assert codes(steps(5, 5).kernel("gemm", at=None, start=150)) == (["lost_launches"], [])


def test_a_capture_without_api_calls_is_incomplete(codes):
    errors, _ = codes(steps(5, 5), lacking=("CUPTI_ACTIVITY_KIND_RUNTIME",))
    assert "no_api_calls" in errors


@pytest.mark.parametrize(
    "text",
    [
        "CUPTI dropped 1242 records.",
        "12 incomplete CUPTI events dropped",
    ],
)
def test_events_that_nsys_says_it_lost_are_an_error(codes, text):
    assert codes(steps(5, 5).diagnostic(2, text)) == (["nsys_lost_events"], [])


def test_nsys_hedging_that_events_might_be_lost_is_a_warning_since_whole_captures_have_it(codes):
    text = "Not all CUDA events might have been collected."
    assert codes(steps(5, 5).diagnostic(2, text)) == ([], ["nsys_hedge"])
    assert codes(steps(5, 0).diagnostic(2, text)) == (["short_steps"], ["nsys_hedge"])


def test_other_words_of_nsys_are_errors_or_warnings_as_nsys_has_it(codes):
    assert codes(steps(5, 5).diagnostic(3, "CUDA injection failed.")) == (["nsys_error"], [])
    assert codes(steps(5, 5).diagnostic(2, "Something is old.")) == ([], ["nsys_warning"])


def test_what_nsys_merely_reports_is_no_finding(codes):
    capture = steps(5, 5).diagnostic(1, "Number of CUDA events collected: 12123.")
    assert codes(capture.diagnostic(1, "CUPTI events dropped: 0")) == ([], [])


def test_ranges_left_open_are_a_warning(codes):
    assert codes(steps(5, 5).range("open", 10, None)) == ([], ["ranges_left_open"])


def test_several_threads_to_inherit_from_are_a_warning(codes):
    capture = steps(5, 5).range("server", 0, 150, thread=3)
    assert codes(capture.kernel("gemm", at=95, thread=2)) == ([], ["several_threads"])
    assert codes(steps(5, 5).range("own", 91, 99, thread=2).kernel("gemm", at=95, thread=2)) == ([], [])


def test_a_finding_has_a_code_that_its_page_explains():
    groups = {"error, no tables": IMPOSSIBLE, "error": INCOMPLETE, "warning": ODD}
    rows = [(kind, code(name), meaning) for kind, codes in groups.items() for name, meaning in codes.items()]
    page = Path(__file__).parents[2] / "docs" / "finding-codes.md"
    assert compact_table(("severity", "code", "meaning"), rows) in page.read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="'new_code' is not one of CODES"):
        Finding("error", "new_code", "a message")


def test_an_export_older_than_its_report_is_an_error(tmp_path):
    path = steps(5, 5).write(tmp_path / "capture.sqlite")
    report = tmp_path / "capture.nsys-rep"
    report.write_bytes(b"a report")
    for age, expected in ((-60, []), (60, ["older_than_report"])):
        os.utime(report, (path.stat().st_mtime + age,) * 2)
        with Trace(path) as trace:
            assert [finding.code for finding in trace.check()] == expected
