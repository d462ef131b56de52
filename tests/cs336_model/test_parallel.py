"""Two processes that share a batch compute what one does, in every way to reduce gradients."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cs336_model.program.parallel import launch
from cs336_model.program.variants.values import DDP, PARALLELS, ZERO1, reduces_only_gradients
from tests.cs336_model.launched_ranks import ended, rank_results, started
from tests.cs336_model.specs import changed
from tests.default_values import DEFAULT_VALUES

WAYS = [*({"parallel": way} for way in PARALLELS[1:]), {"parallel": DDP, "optimizer": ZERO1}]
IDS = [" ".join(way.values()) for way in WAYS]
ONLY_GRADIENTS = [way for way in WAYS if reduces_only_gradients(DEFAULT_VALUES | way)]
SAME = {"rel": 2e-6}  # another order of sums in fp32


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory):
    """What both ranks found of a specification in every way, in one pair of processes."""
    found = {}

    def run(spec: dict) -> list[dict]:
        if not found:
            folder = tmp_path_factory.mktemp("ranks")
            texts = [json.dumps(changed(spec, gpus=2, **way)) for way in WAYS]
            told = rank_results(folder, "tests.cs336_model.ranks_program", texts)
            found.update(zip(map(str, WAYS), told, strict=True))
        return found

    return run


@pytest.mark.parametrize("way", WAYS, ids=IDS)
def test_losses_of_two_ranks_are_those_of_one_process_with_the_whole_batch(two_ranks, run_benchmark, spec_values, way):
    spec = changed(spec_values, batch_size=4, measured_steps=4, warmup_steps=0)
    alone = run_benchmark(batch_size=4, measured_steps=4, warmup_steps=0)["losses"]
    for rank in two_ranks(spec)[str(way)]:
        assert rank["losses"] == pytest.approx(alone, **SAME)


@pytest.mark.parametrize("way", WAYS, ids=IDS)
def test_ranks_have_the_same_gradients(two_ranks, spec_values, way):
    rank0, rank1 = two_ranks(changed(spec_values, batch_size=4, measured_steps=4, warmup_steps=0))[str(way)]
    assert rank0["gradients"] == rank1["gradients"]


@pytest.mark.parametrize("way", ONLY_GRADIENTS, ids=str)
def test_without_communication_each_rank_has_its_own_gradients(two_ranks, spec_values, way):
    rank0, rank1 = two_ranks(changed(spec_values, batch_size=4, measured_steps=4, warmup_steps=0))[str(way)]
    assert rank0["apart"] != pytest.approx(rank1["apart"], rel=1e-3)


@pytest.mark.parametrize("way", WAYS, ids=IDS)
def test_ranks_import_what_they_need_before_they_have_their_gpus(two_ranks, spec_values, way):
    for rank in two_ranks(changed(spec_values, batch_size=4, measured_steps=4, warmup_steps=0))[str(way)]:
        assert rank["imported"] < 10


def python(*programs: str) -> list[list[str]]:
    """The commands of ranks of these Python programs."""
    return [[sys.executable, "-S", "-c", program] for program in programs]


HANGS = "import time; print('begins', flush=True); time.sleep(10**6)"


def test_a_rank_that_fails_ends_the_launcher_which_names_it(tmp_path):
    assert ended(tmp_path, python(HANGS, "raise SystemExit(3)")) == 3
    assert (tmp_path / launch.FIRST_TO_FAIL).read_text() == "1"


def test_a_rank_that_a_signal_ends_is_told_as_a_shell_would(tmp_path):
    assert ended(tmp_path, python("import os; os.kill(os.getpid(), 9)", HANGS)) == 128 + 9


def test_a_rank_that_wrote_why_it_has_no_times_ends_the_others_and_is_named_but_that_is_no_failure(tmp_path):
    assert ended(tmp_path, python(HANGS, f"raise SystemExit({launch.RESULT_WITHOUT_TIMES})")) == 0
    assert (tmp_path / launch.FIRST_TO_FAIL).read_text() == "1"


@pytest.mark.parametrize("how", ["SIGKILL of the launcher", "end of the other rank"])
def test_no_rank_outlives_the_launcher(tmp_path, how):
    tells = f"import os, pathlib; pathlib.Path({str(tmp_path)!r}, 'pid').write_text(str(os.getpid())); "
    ends = "import time; time.sleep(1); raise SystemExit(3)"
    launcher = started(tmp_path, python(tells + HANGS, HANGS if how.startswith("SIGKILL") else ends))
    try:
        wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        rank = Path("/proc", (tmp_path / "pid").read_text(), "stat")
        assert rank.exists()
        if how.startswith("SIGKILL"):
            launcher.kill()
        launcher.wait(30)
        wait_until(lambda: not rank.exists() or rank.read_text().rpartition(")")[2].split()[0] in "ZX")
    finally:
        launcher.kill()


def test_a_rank_whose_launcher_is_gone_before_it_could_ask_to_end_with_it_does_not_begin():
    in_a_child = "from cs336_model.program.parallel.launch import _die_with; _die_with({}); print('begins')"
    gone, there = (
        subprocess.run([sys.executable, "-c", in_a_child.format(parent)], capture_output=True, text=True, timeout=60)
        for parent in ("1 << 30", "__import__('os').getppid()")
    )
    assert (gone.returncode, gone.stdout) == (128 + signal.SIGKILL, "")
    assert (there.returncode, there.stdout) == (0, "begins\n")


def wait_until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_each_rank_is_told_its_number_and_prints_into_a_log_of_its_own(tmp_path):
    says = "import os; print(os.environ['RANK'], os.environ['WORLD_SIZE'])"
    assert ended(tmp_path, python(says, says)) == 0
    assert [(tmp_path / f"rank{rank}.log").read_text() for rank in (0, 1)] == ["0 2\n", "1 2\n"]


def test_a_process_that_hangs_prints_its_stacks_before_its_limit():
    program = (
        "import time; from cs336_model.program.process import print_stacks_before\n"
        "def hangs(): time.sleep(10**6)\n"
        "print_stacks_before(0.4, 0.0); hangs()"
    )
    with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True) as process:
        printed = [process.stderr.readline() for _ in range(3)]
        process.kill()
    assert printed[0].startswith("Timeout")
    assert "in hangs" in printed[2]


def test_a_process_that_is_alone_cannot_measure_a_run_of_two(run_benchmark):
    with pytest.raises(SystemExit, match="gpus is 2, and WORLD_SIZE is 1: they must be equal"):
        run_benchmark(gpus=2, parallel="ddp")
