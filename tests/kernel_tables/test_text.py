"""What the commands print where a person reads; and the tree of ranges: phases side by side, children that add up."""

from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

import kernel_tables
from kernel_tables.text import notebook_html, table_lines
from kernel_tables.tree import longest, range_tree
from tests.kernel_tables.command import run_command
from tests.kernel_tables.program import GEMM, MUL
from tests.kernel_tables.synthetic import Synthetic

REPORTS = Path(__file__).parent / "reports"
SGEMM = "ampere_sgemm_128x64_tn"
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096>)"
MULTIPLY = "void at::native::elementwise_kernel<128, 2, at::native::MulFunctor<float>>(int)"


def steps(multiply_ns: int = 1_000_000) -> Synthetic:
    made = Synthetic().range("step", 0, 100_000).range("forward", 10, 50_000).range("softmax", 20, 30)
    return made.kernel(SGEMM, at=40, duration=3_000_000).kernel(MULTIPLY, at=25, duration=multiply_ns, stream=8)


@pytest.fixture
def capture(tmp_path):
    return steps().kernel(SGEMM, at=60_000, duration=4_000, stream=9).write(tmp_path / "capture.sqlite")


def printed(*arguments, width: int = 80, status: int = 0) -> list[str]:
    """What a command prints in a terminal of so many columns."""
    done = run_command(*arguments, columns=width)
    assert done.returncode == status, done.stderr
    return done.stdout.decode().splitlines()


def test_a_terminal_gets_an_aligned_table_with_short_names_readable_times_and_bars_or_a_tree(capture):
    assert printed("kernels", capture, width=120)[:3] == [
        "kernel           range                     GPU time   share  launches     mean  class            min      max",
        "sgemm 128×64 tn  step > forward             3.00 ms  74.9 %         1  3.00 ms  gemm         3.00 ms  3.00 ms",
        "elementwise mul  step > forward > softmax   1.00 ms  25.0 %         1  1.00 ms  elementwise  1.00 ms  1.00 ms",
    ]
    assert printed("kernels", capture, width=50)[:3] == [
        "kernel           range            GPU time   share",
        "sgemm 128×64 tn  step > forward    3.00 ms  74.9 %",
        "elementwise mul  …ward > softmax   1.00 ms  25.0 %",
    ]
    lines = printed("kernels", capture, "--top", "1", width=120)
    assert lines[2:] == ["2 more kernels, 25.1 % of the GPU time; --top 0 shows all"]
    assert printed("ranges", capture, "--tree", width=100) == [
        "range        times  kernels  GPU time    share",
        "step             1        3   4.00 ms  100.0 %  ████████████",
        "  forward        1        2   4.00 ms   99.9 %  ████████████",
        "    (own)                 1   3.00 ms   74.9 %  █████████",
        "    softmax      1        1   1.00 ms   25.0 %  ███",
        "  (own)                   1   4.00 µs    0.1 %",
        "a step takes 3.00 ms (wall time): kernels 3.00 ms (100.0 %), idle 30 ns (< 0.1 %)",  # two run side by side
    ]
    for command in ("ranges", "kernels", "classes", "host"):
        for width in (40, 80):
            assert max(map(len, printed(command, capture, width=width))) <= width


def test_what_a_capture_lacks_is_said_below_its_tables(capture, tmp_path):
    cpu = Synthetic().metadata("CAPTURE_BACKEND", "torch").range("step", 0, 100).kernel("aten::mm", at=10, device=-1)
    cpu = cpu.write(tmp_path / "cpu.sqlite")
    for command in ("ranges", "kernels", "classes"):
        text = " ".join(printed(command, cpu, width=120))
        assert "operators' time" in text and "no GPU was used" in text and "GPU time" not in text
        assert "no GPU was used" not in " ".join(printed(command, capture))
    bare = Synthetic().kernel(SGEMM, at=1).write(tmp_path / "bare.sqlite")
    assert printed("ranges", bare) == ["no range was recorded; `kernel-tables kernels` shows what ran"]
    assert printed("check", capture) == ["no problems found"]


@pytest.mark.parametrize("command", ["ranges", "kernels", "classes", "host", "diagnose"])
def test_replays_of_graphs_without_their_kernels_are_said_under_every_table(command, tmp_path):
    made = Synthetic().range("step", 0, 100_000).kernel(SGEMM, at=10, duration=4_000)
    path = made.graph(1, at=20_000, duration=5_000).write(tmp_path / "graph.sqlite")
    said = "warning graphs_as_one: 1 replays of CUDA graphs were recorded as one activity each"
    assert sum(said in line for line in printed(command, path, width=200)) == 1


@pytest.mark.parametrize("command", ["ranges", "kernels", "classes", "host", "communication", "diagnose"])
def test_what_is_lost_stands_below_every_table_and_above_advice(command):
    path = REPORTS / "steps_without_kernels_malformed.json.gz"
    text = printed(command, path, width=200)
    loss = "error steps_without_kernels: 30 of 32 ranges 'step' hold no kernel"
    (row,) = (row for row, line in enumerate(text) if loss in line)
    assert text[0].startswith("error ") and row < text.index("") if command == "diagnose" else row > 1
    done = run_command(command, path, "--format", "csv")
    assert b"30 of 32 ranges" in done.stderr and b"30 of 32 ranges" not in done.stdout
    with kernel_tables.read(path) as profile:
        assert "30 of 32 ranges" in notebook_html(profile, "step")


def test_two_captures_are_compared_in_columns_of_one_step_and_without_a_change_that_is_said(capture, tmp_path):
    after = steps(2_000_000).write(tmp_path / "after.sqlite")
    lines = printed("diff", capture, after, status=1)
    assert lines[:3] == [
        "level   name             change   before    after  launches    ratio      more",
        "phase   forward          time    4.00 ms  5.00 ms         2   × 1.25   1.00 ms",
        "phase   (outside)        gone    4.00 µs     0 ns     1 → 0      × 0  -4.00 µs",
    ]
    assert lines[-1] == "times and launches are per step"
    nothing = "nothing differs: no time by more than 1 %, 0.1 % of a step and 2 standard errors"
    assert printed("diff", capture, capture) == [nothing]


def test_columns_that_do_not_fit_are_named_and_keys_stay(capture):
    assert "without per launch, process, thread; --format csv prints all columns" in printed("host", capture)[-1]
    assert printed("communication", capture)[0].split() == ["rank", "device", "step", "step", "time", "compute"]
    table = pd.DataFrame({"rank": [0, 1], "range": ["a", "b"], "whole": [True, False], "rate": [float("inf"), 1.5]})
    lines = [line.split() for line in table_lines(table, 80).splitlines()]
    assert lines == [["rank", "range", "whole", "rate"], ["0", "a", "True", "inf"], ["1", "b", "False", "1.5"]]


def test_what_cannot_be_seen_in_a_name_does_not_reach_the_terminal(tmp_path):
    made = Synthetic().range("\x1b[31mred", 0, 100).kernel("\x1b]0;title\x07", at=10).write(tmp_path / "c.sqlite")
    assert printed("kernels", made, width=120)[1].startswith(r"\x1b]0;title\x07  \x1b[31mred")


def rows_of(capture: Synthetic, folder) -> list[tuple[int, str, int]]:
    """(depth, label, kernels) of the rows of the tree."""
    with kernel_tables.read(capture.write(folder / "capture.sqlite")) as profile:
        return [(node.depth, node.label, node.kernels) for node in range_tree(profile)]


def test_forward_backward_and_optimizer_are_siblings_whoever_calls_whom(tmp_path):
    for optimizer_start in (10, 650):  # around both passes, as with a closure, or after them
        passes = Synthetic().range("step", 0, 1000).range("Net", 20, 100).kernel(GEMM, at=30)
        passes.range("backward", 200, 600).range("Net", 210, 500).kernel(GEMM, at=220)
        passes.range("Optimizer.step#Adam.step", optimizer_start, 900).kernel(MUL, at=700)
        optimizer, net = (1, "optimizer (Adam)", 1), (2, "Net", 1)
        expected = [(0, "step", 3), (1, "backward", 1), net, (1, "forward", 1), net, optimizer]
        assert sorted(rows_of(passes, tmp_path)) == sorted(expected)


def test_names_are_as_long_as_they_must_be(tmp_path):
    made = Synthetic().range("step", 0, 1000).range("backward", 10, 900).range("Linear", 20, 800)
    made.kernel(GEMM, at=30, duration=50).kernel(NCCL, at=40, duration=200)
    assert rows_of(made, tmp_path) == [(0, "step", 2), (1, "backward", 2), (2, "communication", 1), (2, "Linear", 1)]
    made = Synthetic().range("layers", 0, 100).range("head + layers.act", 10, 90).range("empty", 11, 12)
    assert rows_of(made.kernel(GEMM, at=40), tmp_path)[-1] == (1, "head + .act", 1)
    made = Synthetic().range("step", 0, 1000)
    for at, name in ((10, "FSDP::pre_forward (layers.1)"), (100, "FSDP::pre_forward for layers.0")):
        made.range(name, at, at + 50).kernel(MUL, at=at + 1)
    assert rows_of(made, tmp_path)[1:] == [(1, "FSDP::pre_forward", 2)]


@pytest.mark.parametrize("name", ["tiny_2025.3.1", "nccl_2025.3.1", "graph_replayed_2025.3.2"])
def test_the_rows_below_a_row_add_up_to_it(name):
    with kernel_tables.read(Path(__file__).parents[1] / "captures" / f"{name}.sqlite.gz") as profile:
        nodes, kernels = range_tree(profile), profile.kernels()
    sums, around = Counter(), []
    for node in nodes:
        around[node.depth :] = [node]
        sums[id(around[-2]) if node.depth else 0] += node.total_ns
    assert sums.pop(0) == kernels["total_ns"][kernels["range"] != ""].sum() and len(sums) > 2
    assert all(sums[id(node)] in (0, node.total_ns) for node in nodes)
    few = longest(nodes, 6)
    assert len(few) == 6 and few == [node for node in nodes if node in few] and longest(nodes, 0) == nodes
