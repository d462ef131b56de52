"""What a benchmark says where what it starts fails; the benchmarks themselves are run by hand."""

import subprocess
import sys
from argparse import Namespace

import pytest

from benchmarks import comparison


def sides(monkeypatch, **programs: str) -> list[subprocess.Popen]:
    """Both sides run these Python programs; the processes that were started."""
    started = []

    def start(options, side):
        started.append(subprocess.Popen([sys.executable, "-S", "-c", programs[side]], start_new_session=True))
        return started[-1]

    monkeypatch.setattr(comparison, "started_side", start)
    return started


def test_a_side_of_a_comparison_that_fails_is_told_with_its_log_and_the_other_is_ended(tmp_path, monkeypatch):
    started = sides(monkeypatch, before="raise SystemExit(3)", after="import time; time.sleep(60)")
    with pytest.raises(SystemExit, match=r"before: Snakemake ended with status 3; see .*before/snakemake\.log"):
        comparison.measured(Namespace(folder=tmp_path, limit_s=None))
    assert started[1].returncode == -15


def test_sides_of_a_comparison_are_ended_at_the_limit_and_finished_rounds_count(tmp_path, monkeypatch):
    for side in comparison.SIDES:
        (tmp_path / side / "results" / "processes").mkdir(parents=True)
        (tmp_path / side / "results" / "processes" / "1.done").touch()
    started = sides(monkeypatch, **dict.fromkeys(comparison.SIDES, "import time; time.sleep(60)"))
    assert comparison.measured(Namespace(folder=tmp_path, limit_s=0.1)) == 1
    assert [side.returncode for side in started] == [-15, -15]
