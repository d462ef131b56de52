"""(h): the fastest attention at each length, its gain over eager attention, and where memory ends."""

from dataclasses import replace

import pytest

from profile_grid.documents.documents import document_names
from tests.profile_grid.made_up import SDPA, Kernel, Made, forward_kernels, grid, merged
from tests.profile_grid.made_up_answers import answered, summaries_of, told
from tests.profile_grid.test_answers import OOM, line_of

FLASH = "pytorch_flash::flash_fwd_kernel<Traits<64, 128, 128>>(Params)"


def fused(run: Made, attention: str, ms: float, operator_us: float = 200.0) -> Made:
    """The run with a backend's attention: one kernel in the place of its parts, and `ms` as its step time."""
    others = tuple(kernel for kernel in run.kernels if not kernel.range.startswith(SDPA))
    kernel = Kernel("forward", SDPA, FLASH, "attention", 12, operator_us)  # phase, range, name, class, launches, µs
    return replace(run, attention=attention, kernels=(*others, kernel), unprofiled_ms=ms)


def out_of_memory(run: Made) -> Made:
    status = {"timing_status": "out_of_memory", "capture_status": "out_of_memory"}
    return replace(run, kernels=(), others=run.others | OOM, **status)


def three(ms_eager=10.0, ms_flash=5.0, ms_math=8.0, **changes) -> list[Made]:
    eager = Made(kernels=forward_kernels(), unprofiled_ms=ms_eager, **changes)
    return [eager, fused(eager, "flash", ms_flash), fused(eager, "math", ms_math)]


def test_the_question_is_asked_where_runs_differ_in_attention_and_nowhere_else():
    assert "h_attention" not in document_names(merged(grid())["runs"])
    assert "# (h) Which attention is fastest" in answered("h_attention", three())


def test_a_run_without_a_partner_has_a_time_and_no_speed_up():
    eager, flash, math = three()
    table = summaries_of("h_attention", out_of_memory(eager), flash, math)["attention_times"].set_index("attention")
    assert table["mean_ms"].notna().tolist() == [False, True, True] and table["speed_up"].isna().all()
    assert table["status"].tolist() == ["out_of_memory", "complete", "complete"]


def test_a_run_that_no_other_differs_from_in_attention_alone_is_not_in_the_table():
    alone = replace(three()[1], context_length=128)
    assert alone.name not in set(summaries_of("h_attention", *three(), alone)["attention_times"]["run"])


def test_the_operator_alone_stands_beside_its_parts_written_out():
    table = summaries_of("h_attention", *three())["attention_operator"].set_index("attention")
    assert table.loc["flash", "base_gpu_time_ms"] == pytest.approx(0.8 + 0.8 + 0.6 + 0.9)  # of forward_kernels
    assert table.loc["flash", "speed_up"] == pytest.approx(3.1 / 0.2)
    flops, moved = 12 * 2 * 4 * 512 * 513 * 768, 12 * 4 * 4 * 512 * 768 * 4
    assert table.loc["flash", "ideal_by_flops"] == pytest.approx(3.1e-3 / (flops / 67e12))
    assert table.loc["flash", "ideal_by_bytes"] == pytest.approx(3.1e-3 / (moved / 4.8e12))


def test_the_fastest_is_named_by_length_and_none_where_processes_differ_as_much():
    text = told(
        "h_attention", [*three(ms_flash=11.0, ms_math=11.0, ms_eager=16.0), *three(13, 12, 30, context_length=128)]
    )
    assert "Rows of the table with a clearly fastest attention: at context 512 none; at context 128 none." in text
    assert "Rows of the table with a clearly fastest attention: at context 512 flash." in told(
        "h_attention", three(60.0, 5.0, 40.0)
    )


def test_the_largest_gain_leads_with_its_place_and_all_are_counted():
    text = told("h_attention", three(ms_eager=30.0))
    assert text.startswith(
        "With flash attention, the forward pass of small at context 512 is 6.00 times as fast as with eager attention;"
    )
    assert "Compared with eager attention: faster in both runs (× 3.75 to × 6.00)." in text


def test_where_memory_ends_is_told_with_what_still_fits():
    longer = three(context_length=2048)
    text = told("h_attention", [*three(), out_of_memory(longer[0]), *longer[1:]])
    assert "With eager attention, memory runs out in small at context 2048, forward pass. With math and flash" in text
    assert "With math and flash attention, it suffices there." in text
    assert "No run exhausts the memory." in told("h_attention", three())


def test_an_attention_runs_out_of_memory_only_where_it_did():
    short, long = three(context_length=2048), three(context_length=4096)
    runs = [*three(), out_of_memory(short[0]), *short[1:], *map(out_of_memory, long[:2]), long[2]]
    text = told("h_attention", runs)
    both, second = (f"small at context {length}, forward pass" for length in (2048, 4096))
    assert (
        f"With eager attention, memory runs out in {both}; {second}. With flash attention, memory runs out in" in text
    )
    assert f"runs out in {second}. With math attention, it suffices there." in text


def test_attentions_that_fail_in_different_runs_are_not_said_to_fail_together():
    lengths = (1024, 2048, 4096, 8192)
    # positions in three() of what fails: eager (0) and flash (1) both fail twice, and then once more each
    failing = {1024: (0, 1), 2048: (0, 1), 4096: (0,), 8192: (1,)}
    runs = [*three()]
    for length in lengths:
        runs += [
            out_of_memory(run) if number in failing[length] else run
            for number, run in enumerate(three(context_length=length))
        ]
    assert "With eager and flash" not in told("h_attention", runs)


def test_what_pytorch_refuses_is_a_cell_and_a_sentence():
    eager, flash, math = three()
    refused = replace(flash, timing_status="unsupported", capture_status="unsupported", kernels=(),
                      others={"reason": "attention flash: No available kernel"})  # fmt: skip
    text = answered("h_attention", [eager, refused, math])
    assert "PyTorch refuses flash in 1 run" in text and "not supported here: attention flash" in text
    assert line_of(text, "small", "512", "forward pass").endswith("unsupported |")


def test_peak_memory_has_a_table_where_the_device_tells_it():
    assert "most memory" not in answered("h_attention", three())
    known = [replace(run, peak_allocated_bytes=2**31) for run in three()]
    assert "Peak memory of tensors:" in answered("h_attention", known)


def test_without_any_time_nothing_is_answered():
    assert told("h_attention", [out_of_memory(run) for run in three()]).startswith("Not answered: no timed run differs")
