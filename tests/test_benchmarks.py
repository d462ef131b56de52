"""What benchmarks share, and what one says if what it starts fails; the benchmarks themselves are run by hand."""

import subprocess
import sys
from argparse import Namespace
from importlib import import_module
from pathlib import Path
from typing import Literal

import pytest

from benchmarks import comparison, harness
from benchmarks.programs import in_phases

BENCHMARKS = sorted(
    path.stem for path in harness.ROOT.glob("benchmarks/*.py") if "run(main)" in path.read_text(encoding="utf-8")
)


def example(
    folder: Path,
    names: list[str] = ("a",),
    *,
    runs: Literal[60, 600] = 60,
    only: Literal["loop"] | None = None,
    every: bool = False,
) -> str:
    return f"{folder!r} {names} {runs} {only} {every}"


@pytest.mark.parametrize(
    ("arguments", "taken"),
    [
        (["there"], f"{Path('there')!r} ('a',) 60 None False"),
        (["there", "b", "c", "--runs", "600"], f"{Path('there')!r} ['b', 'c'] 600 None False"),
        (["there", "--only", "loop", "--every"], f"{Path('there')!r} ('a',) 60 loop True"),
        ([], 2),
        (["there", "--runs", "61"], 2),
    ],
)
def test_the_parameters_of_a_benchmark_are_its_options(monkeypatch, arguments, taken):
    monkeypatch.setattr(sys, "argv", ["example", *arguments])
    with pytest.raises(SystemExit) as ended:
        harness.run(example)
    assert ended.value.code == taken


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_has_options_that_can_be_read(monkeypatch, name, capsys):
    module = import_module(f"benchmarks.{name}")
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        harness.run(module.main)
    assert ended.value.code == 0 and "usage:" in capsys.readouterr().out


def test_a_process_that_fails_or_takes_too_long_has_no_cost_but_a_reason():
    python = [sys.executable, "-S", "-c"]
    assert harness.cost([*python, "print('no'); raise SystemExit(3)"]) == "failed with status 3: no"
    assert harness.cost([*python, "print('SKIPPED: no such report')"]).startswith("failed with status 0: SKIPPED")
    assert harness.cost([*python, "import time; time.sleep(60)"], limit_s=0.1) == "killed after 0.1 s"


def test_ratios_of_costs_are_to_the_first_line(monkeypatch, capsys):
    made = iter([harness.Cost(2.0, 1.0, 10.0), "failed", harness.Cost(3.0, 5.0, 20.0)])
    monkeypatch.setattr(harness, "cost", lambda command: next(made))
    costs = harness.Costs("title", "wall_s")
    for name in ("bound", "broken", "ours"):
        costs.measure(name, [])
    rows = [line.split("|")[-2].strip() for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert rows[2:] == ["1.00", "", "1.50"]


def test_a_launch_after_many_modules_inside_a_model_is_of_its_forward_pass(monkeypatch):
    monkeypatch.setattr(in_phases.torch.cuda, "is_available", lambda: False)
    model = {"cat": "user_annotation", "name": in_phases.FORWARD, "ts": 0, "dur": 1000}
    modules = [model | {"ts": 10 + 5 * number, "dur": 4} for number in range(100)]
    losses = [{"cat": "cpu_op", "name": "aten::nll_loss", "tid": 1, "ts": ts, "dur": 2000} for ts in (990, 3000)]
    losses.append({"cat": "cpu_op", "name": "c10d::allreduce_", "tid": 1, "ts": 5, "dur": 2})
    counted = in_phases.by_phase([model, *modules, *losses])
    assert [counted[phase]["kernels"] for phase in ("forward", "rest", "communication", "all")] == [2, 1, 1, 3]


def sides(monkeypatch, **programs: str) -> list[subprocess.Popen]:
    """Both sides run these Python programs; the processes that were started."""
    started = []

    def start(options, side):
        started.append(subprocess.Popen([sys.executable, "-S", "-c", programs[side]], start_new_session=True))
        return started[-1]

    monkeypatch.setattr(comparison, "start_side", start)
    return started


def test_a_side_of_a_comparison_that_fails_is_told_with_its_log_and_the_other_is_ended(tmp_path, monkeypatch):
    started = sides(monkeypatch, before="raise SystemExit(3)", after="import time; time.sleep(60)")
    with pytest.raises(SystemExit, match=r"before: Snakemake ended with status 3; see .*before/snakemake\.log"):
        comparison.measure_sides(Namespace(folder=tmp_path, limit_s=None))
    assert started[1].returncode == -15


def test_sides_of_a_comparison_are_ended_at_the_limit_and_finished_rounds_count(tmp_path, monkeypatch):
    for side in comparison.SIDES:
        (tmp_path / side / "results" / "processes").mkdir(parents=True)
        (tmp_path / side / "results" / "processes" / "1.done").touch()
    started = sides(monkeypatch, **dict.fromkeys(comparison.SIDES, "import time; time.sleep(60)"))
    assert comparison.measure_sides(Namespace(folder=tmp_path, limit_s=0.1)) == 1
    assert [side.returncode for side in started] == [-15, -15]
