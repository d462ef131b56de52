"""What the commands print where a person reads, and that programs get what they always got."""

import math
import sys

import pandas as pd
import pytest

from kernel_tables.__main__ import main
from kernel_tables.kineto.capture_schema import CPU_DEVICE
from kernel_tables.terminal.columns import TextColumn, aligned, cut, table_lines, text_width
from kernel_tables.trace import Trace
from kernel_tables.units import bar, duration, percent, size
from tests.kernel_tables.synthetic import Synthetic

GEMM, MUL = "ampere_sgemm_128x64_tn", "void at::native::elementwise_kernel<128, 2, at::native::MulFunctor<float>>(int)"


@pytest.fixture
def capture(tmp_path):
    made = Synthetic().range("step", 0, 100_000).range("forward", 10, 50_000).range("softmax", 20, 30)
    made = made.kernel(GEMM, at=40, duration=3_000_000).kernel(MUL, at=25, duration=1_000_000)
    return made.kernel(GEMM, at=60_000, duration=4_000).write(tmp_path / "capture.sqlite")


@pytest.fixture
def printed(monkeypatch, capsys):
    """What a command prints in a terminal of so many columns."""

    def of(*arguments, width: int = 80, status: int = 0) -> list[str]:
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        monkeypatch.setenv("COLUMNS", str(width))
        assert main([*map(str, arguments)]) == status
        return capsys.readouterr().out.splitlines()

    return of


def test_a_terminal_gets_an_aligned_table_with_short_names_readable_times_and_bars(printed, capture):
    assert printed("kernels", capture, width=106) == [
        "kernel           range                     class        launches  GPU time   share                mean",
        "sgemm 128×64 tn  step > forward            gemm                1   3.00 ms  74.9 %  █████████  3.00 ms",
        "elementwise mul  step > forward > softmax  elementwise         1   1.00 ms  25.0 %  ███        1.00 ms",
        "sgemm 128×64 tn  step                      gemm                1   4.00 µs   0.1 %             4.00 µs",
    ]  # fmt: skip


def test_the_ranges_are_a_tree_where_that_is_asked_for(printed, capture):
    assert printed("ranges", capture, "--tree", width=80) == [
        "range        times  kernels  GPU time    share",
        "step             1        3   4.00 ms  100.0 %  ████████████",
        "  forward        1        2   4.00 ms   99.9 %  ████████████",
        "    (own)                 1   3.00 ms   74.9 %  █████████",
        "    softmax      1        1   1.00 ms   25.0 %  ███",
        "  (own)                   1   4.00 µs    0.1 %",
        "a step takes 3.00 ms (wall time): kernels 3.00 ms (100.0 %), idle 30 ns (<0.1 %)",  # two run side by side
    ]  # fmt: skip


def test_a_module_in_a_tree_has_the_part_of_its_name_that_its_surrounding_module_lacks(printed, tmp_path):
    made = Synthetic().range("blocks", 0, 100).range("blocks.mlp", 10, 90).range("blocks.mlp.up", 20, 80)
    capture = made.range("blocks.mlpx", 30, 70).kernel(GEMM, at=40).write(tmp_path / "capture.sqlite")
    names = [line.split()[0] for line in printed("ranges", capture, "--tree", width=100)[1:]]
    assert names == ["blocks", ".mlp", ".up", "blocks.mlpx"]


def test_a_name_that_looks_like_a_path_is_one_name(printed, tmp_path):
    made = Synthetic().range("step", 0, 100).range("load > decode", 10, 90).range("decode", 20, 80)
    capture = made.kernel(GEMM, at=40).write(tmp_path / "capture.sqlite")
    names = [line[:20].strip() for line in printed("ranges", capture, "--tree", width=100)[1:-1]]
    assert names == ["step", "load > decode", "decode"]
    assert r"step > load \> decode > decode" in printed("kernels", capture, width=120)[1]


def test_of_a_capture_of_a_processor_it_is_said_whose_time_it_is(printed, capture, tmp_path):
    made = Synthetic().range("step", 0, 100).kernel("aten::mm", at=10, device=CPU_DEVICE)
    lines = printed("ranges", made.write(tmp_path / "cpu.sqlite"), width=60)
    assert " ".join(lines[2:]).startswith("no GPU was used: a kernel is an outermost operator of PyTorch")
    assert max(map(len, lines)) <= 60
    assert "operators' time" in lines[0]
    for command in ("ranges", "kernels", "classes"):
        assert "GPU time" not in " ".join(printed(command, tmp_path / "cpu.sqlite", "--top", "1", width=120))
    assert "no GPU was used" not in " ".join(printed("ranges", capture))


def test_of_graphs_that_are_one_activity_each_it_is_said_how_to_have_their_kernels(printed, capture, tmp_path):
    graphs = Synthetic().range("step", 0, 100).graph(4, at=10).write(tmp_path / "graphs.sqlite")
    for command in ("ranges", "kernels", "classes"):
        assert "nsys profile --cuda-graph-trace=node" in " ".join(printed(command, graphs, width=80))
        assert "CUDA graphs" not in " ".join(printed(command, capture))


def test_a_capture_that_does_not_tell_its_devices_is_not_taken_for_one_of_a_processor(printed, tmp_path):
    made = Synthetic().range("step", 0, 100).kernel(GEMM, at=10)
    lines = printed("classes", made.write(tmp_path / "c.sqlite", lacking=("CUPTI_ACTIVITY_KIND_KERNEL.deviceId",)))
    assert "GPU time" in lines[0] and len(lines) == 2


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize("command", ["ranges", "kernels", "classes"])
def test_no_line_is_longer_than_the_terminal_is_wide(printed, capture, command, width):
    assert max(map(len, printed(command, capture, width=width))) <= width


def test_a_format_gets_the_columns_of_old_to_the_nanosecond_in_a_terminal_too(printed, capture, tmp_path):
    main(["kernels", str(capture), "-o", str(tmp_path / "table.csv")])
    lines = printed("kernels", capture, "--format", "csv")
    assert lines == (tmp_path / "table.csv").read_text().splitlines()
    assert lines[0] == "range,kernel,class,launches,total_ns,mean_ns,min_ns,max_ns,std_ns"


def test_the_first_rows_are_shown_in_the_order_that_is_asked_for_and_the_others_are_counted(printed, capture):
    lines = printed("kernels", capture, "--top", "1", "--sort", "launches")
    assert lines[1].startswith("sgemm 128×64 tn")
    assert lines[2:] == ["2 more kernels, 25.1 % of the GPU time; --top 0 shows all"]
    assert GEMM in printed("kernels", capture, "--full")[1]


def test_top_and_sort_choose_rows_for_programs_too(capture, tmp_path):
    out = tmp_path / "table.csv"
    assert main(["kernels", str(capture), "--sort", "kernel", "--top", "2", "-o", str(out)]) == 0
    assert [line.split(",")[1] for line in out.read_text().splitlines()] == ["kernel", GEMM, GEMM]


def test_a_column_that_is_not_there_is_refused_by_name(capture, capsys):
    assert main(["kernels", str(capture), "--sort", "speed"]) == 2
    assert "no such column; there are range, kernel, class" in capsys.readouterr().err
    assert main(["ranges", str(capture), "--sort", "range", "--tree"]) == 2


def test_the_tree_conserves_what_was_launched(capture):
    with Trace(capture) as trace:
        tree, flat = trace.range_tree(), trace.ranges().set_index("range")
    assert tree["range"].tolist() == ["step", "step > forward", "step > forward > softmax"]
    for row in tree.itertuples():
        name = row.range.rpartition(" > ")[2]
        assert (row.kernels, row.gpu_time_ns) == (flat.loc[name, "kernels"], flat.loc[name, "gpu_time_ns"])


def test_times_have_three_digits_and_a_unit():
    times = [0, 999, 1000, 99_949, 999_499, 1_234_567, 123_456_789, 61e9]
    assert [duration(ns) for ns in times] == [
        "0 ns", "999 ns", "1.00 µs", "99.9 µs", "999 µs", "1.23 ms", "123 ms", "61.0 s",
    ]  # fmt: skip
    assert duration(float("nan")) == "–"
    counts = (0, 12, 1023, 4096, 10_240, 1023 * 2**20, 2**31, float("nan"))
    assert [size(count) for count in counts] == [
        "0 B", "12 B", "1,023 B", "4.00 KiB", "10.0 KiB", "1,023 MiB", "2.00 GiB", "–",
    ]  # fmt: skip
    assert [percent(share) for share in (0, 0.0001, 0.5, 1)] == ["0.0 %", "<0.1 %", "50.0 %", "100.0 %"]
    assert [bar(share, 4) for share in (0, 0.5, 0.53125, 2)] == ["    ", "██  ", "██▏ ", "████"]


def test_texts_are_cut_where_there_is_no_room_and_columns_left_out_by_rank():
    columns = [
        TextColumn("name", ["a long name"], right=False, min_chars=6),
        TextColumn("path", ["outer > inner"], right=False, min_chars=6, cut_start=True, drop_rank=1),
        TextColumn("n", ["12"], drop_rank=6),
    ]
    assert aligned(columns, 30).splitlines() == ["name         path            n", "a long name  outer > inner  12"]
    assert aligned(columns, 29).splitlines() == ["name         path", "a long name  outer > inner"]
    assert aligned(columns, 14).splitlines() == ["name    path", "a lon…  …inner"]
    assert aligned(columns, 13).splitlines() == ["name", "a long name"]
    assert cut("kernel", 4) == "ker…"
    assert cut("kernel", 4, at_start=True) == "…nel"
    assert text_width("核e\u0301") == 3


def test_texts_that_would_be_cut_to_the_same_lose_their_middle():
    columns = [
        TextColumn("name", ["mul scalar-tensor fp32", "mul scalar-tensor bf16", "mul", "copy of a tensor"], False, 9)
    ]
    assert aligned(columns, 13).splitlines()[1:] == ["mul sc…r fp32", "mul sc…r bf16", "mul", "copy of a te…"]


def test_what_cannot_be_seen_in_a_name_does_not_reach_the_terminal(printed, tmp_path):
    made = Synthetic().range("\x1b[31mred", 0, 100).kernel("\x1b]0;title\x07", at=10)
    lines = printed("kernels", made.write(tmp_path / "capture.sqlite"), width=120)
    assert "\x1b" not in "".join(lines)
    assert lines[1].startswith(r"\x1b]0;title\x07  \x1b[31mred")


def test_two_captures_are_compared_in_columns_of_one_step_and_without_a_change_that_is_said(printed, capture, tmp_path):
    made = Synthetic().range("step", 0, 100_000).range("forward", 10, 50_000).range("softmax", 20, 30)
    made = made.kernel(GEMM, at=40, duration=3_000_000).kernel(MUL, at=25, duration=2_000_000)
    after = made.write(tmp_path / "after.sqlite")
    assert printed("diff", capture, after, status=1) == [
        "level   name             change   before    after      more    ratio  launches",
        "phase   forward          time    4.00 ms  5.00 ms   1.00 ms   × 1.25         2",
        "phase   (outside)        gone    4.00 µs     0 ns  -4.00 µs      × 0     1 → 0",
        "part    softmax          time    1.00 ms  2.00 ms   1.00 ms      × 2         1",
        "part    (outside)        gone    4.00 µs     0 ns  -4.00 µs      × 0     1 → 0",
        "class   elementwise      time    1.00 ms  2.00 ms   1.00 ms      × 2         1",
        "class   gemm             count   3.00 ms  3.00 ms  -4.00 µs  × 0.999     2 → 1",
        "kernel  elementwise mul  time    1.00 ms  2.00 ms   1.00 ms      × 2         1",
        "kernel  sgemm 128×64 tn  count   3.00 ms  3.00 ms  -4.00 µs  × 0.999     2 → 1",
        "times and launches are per step",
    ]
    assert printed("diff", capture, capture) == [
        "nothing differs: no time by more than 1 %, 0.1 % of a step and 2 standard errors"
    ]


def test_the_findings_of_a_check_are_sentences_within_the_width_and_none_is_said(printed, capture, tmp_path):
    assert printed("check", capture) == ["no problems found"]
    lines = printed("check", Synthetic().kernel(GEMM, at=1).write(tmp_path / "bare.sqlite"), status=1)
    assert lines[0].startswith("error no_ranges: no NVTX range was recorded")
    assert max(map(len, lines)) <= 80


def test_a_capture_without_ranges_names_the_command_that_tells_what_ran(printed, tmp_path):
    bare = Synthetic().kernel(GEMM, at=1).write(tmp_path / "bare.sqlite")
    assert printed("ranges", bare) == ["no range was recorded; `kernel-tables kernels` shows what ran"]


def test_what_the_host_did_fits_the_width_and_the_columns_that_do_not_are_named(printed, capture):
    lines = printed("host", capture)
    assert lines[0].split() == ["where", "source", "function", "calls", "time", "own", "launches"]
    assert max(map(len, lines)) <= 80
    assert lines[-2:] == [
        "without process, thread, per launch; --format csv prints all columns, to the",
        "nanosecond",
    ]
    assert printed("host", capture, width=200)[0].split()[:3] == ["process", "thread", "where"]


def test_a_table_of_steps_tells_the_number_of_a_step_from_its_time(printed, capture):
    assert printed("communication", capture)[0].split() == ["rank", "device", "step", "step", "time", "compute"]


def test_a_table_with_cells_that_are_missing_or_no_texts_is_printed():
    table = pd.DataFrame({"rank": [0, 1], "range": ["a", None], "whole": [True, False], "rate": [math.inf, 1.5]})
    lines = [line.split() for line in table_lines(table, 80).splitlines()]
    assert lines == [["rank", "range", "whole", "rate"], ["0", "a", "True", "inf"], ["1", "–", "False", "1.5"]]
