"""Commands that run in turns, and remedies that are applied in a program: on a CPU, from the command to its table."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_tables.record.compare import Sample, Side, compare, names_of_helpful
from tests.kernel_tables.command import run_command

ROOT = Path(__file__).parents[3]
LOOP = """
import os, sys, time, torch
from torch import nn
open("pids", "a").write(f"{os.getpid()} ")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=float(sys.argv[2]))
for step in range(30):
    model(torch.ones(4, 8)).square().mean().backward()
    optimizer.step()
    time.sleep(float(sys.argv[1]))
"""
CALLS = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
for call in range(30):
    with torch.no_grad():
        model(torch.ones(4, 8))
"""
DATA = """
import time, torch
from torch import nn
class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 400
    def __getitem__(self, number):
        time.sleep(0.006)
        return torch.full((16,), number / 400), number % 5
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 5))
optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
for inputs, labels in torch.utils.data.DataLoader(Samples(), batch_size=8):
    nn.functional.cross_entropy(model(inputs), labels).backward()
    optimizer.step()
    optimizer.zero_grad()
"""
WINDOW = ("--skip", "4", "--steps", "20")


@pytest.fixture
def script(tmp_path, monkeypatch):
    """A function that writes a program, and returns its words."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def write(source: str, *arguments: str) -> list[str]:
        (tmp_path / "program.py").write_text(source)
        return [sys.executable, "program.py", *arguments]

    return write


def test_a_planted_slow_step_is_found_with_equal_losses_and_sets_the_exit_status(script, tmp_path):
    # four times as long, so that a host with other work, whose steps wait 5 ms now and then, cannot hide it
    before, after = (" ".join(script(LOOP, seconds, "0.1")) for seconds in ("0.02", "0.08"))
    options = ("--processes", "3", *WINDOW, "--fail-on", "slower 2%", "-o", "table.json")
    done = run_command("compare", before, f"SOME=value {after}", *options)
    (row,) = json.loads(Path("table.json").read_text())
    assert done.returncode == 1 and b"--fail-on slower 2%: after is" in done.stderr
    assert row["verdict"] == "slower" and 20 < row["before_ms"] < 80 < row["after_ms"] and row["low"] > 1
    assert row["result"] == "loss" and row["difference"] == 0 and row["agree"]
    assert b"6 of 6" in done.stderr and b"s left" in done.stderr
    assert not any(Path(f"/proc/{pid}").exists() for pid in (tmp_path / "pids").read_text().split())


def test_a_text_says_what_was_timed_and_whether_losses_agree(script):
    words = (" ".join(script(LOOP, "0", rate)) for rate in ("0.1", "0.2"))
    text = run_command("compare", *words, "--processes", "1", *WINDOW, "--format", "text").stdout.decode()
    assert "steps 5 to 24 of SGD" in text and "verdict  cannot be told\n" in text and "take more --processes" in text
    assert re.search(r"results  cannot be told: loss 0\.\d+, then 0\.\d+ \(\d+\.\d %\)\n", text)


def test_calls_of_a_model_are_timed_and_their_outputs_compared(script):
    words = " ".join(script(CALLS))
    text = run_command("compare", words, words, "--processes", "1", *WINDOW, "--format", "text").stdout.decode()
    assert "calls 5 to 24 of Sequential" in text and "results  agree: output (0.0 %)" in text


@pytest.mark.parametrize(("source", "options", "message"), [
    ("import torch\nraise SystemExit('no such file: data.bin')", (), "before: the program ended with exit status 1; its"
     " last line: no such file: data.bin"),
    (LOOP.replace("    time.sleep", "    if step == 20: raise ValueError('mine')\n    time.sleep"),
     ("--steps", "25"), "its last line: ValueError: mine"),
    (CALLS, ("--steps", "50"), "the program ended after 19 of the 50 steps to time; take a smaller --steps or --skip"),
    (CALLS, ("--skip", "50"), "and the program made 30 calls of Sequential; take a smaller --skip"),
    (CALLS, ("--budget", "1e-9"), "--budget: it was spent before each side had a process"),
    (CALLS, ("--fail-on", "slow"), "--fail-on 'slow': expected slower, faster or changed, as in 'slower 2%'"),
    (CALLS, ("--processes", "0"), "--processes has to be at least 1"),
])  # fmt: skip
def test_what_cannot_be_compared_is_said_in_one_line(script, source, options, message):
    words = " ".join(script(source, "0", "0.1"))
    done = run_command("compare", words, words, "--processes", "1", *options)
    assert done.returncode == 2 and message in done.stderr.decode().splitlines()[-1]


def test_an_error_in_a_later_process_keeps_what_was_measured(script, tmp_path):
    fourth = "import sys\nif open('pids').read().count(' ') == 3: sys.exit('4th')\n"
    words = " ".join(script(fourth + LOOP, "0", "0.1"))
    (tmp_path / "pids").touch()
    done = run_command("compare", words, words, "--processes", "2", *WINDOW, "-o", "table.json")
    (row,) = json.loads(Path("table.json").read_text())
    assert done.returncode == 2 and b"before: the program ended with exit status 1; its last line: 4th" in done.stderr
    assert row["used"] == "1 and 2 processes" and row["ratio"] > 0


def test_ctrl_c_keeps_what_was_measured_and_ends_the_program(script, tmp_path):
    words = " ".join(script(LOOP, "0.01", "0.1"))
    command = [sys.executable, "-m", "kernel_tables", "compare", words, words, *WINDOW, "--format", "text"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    next(line for line in running.stderr if "2 of 12" in line)
    while len(pids := (tmp_path / "pids").read_text().split()) < 3:
        os.sched_yield()
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 130 and "1 process each" in out and "interrupted" in err
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_try_measures_the_remedies_of_a_program_and_says_why_not(script):
    done = run_command("try", "--processes", "2", "--precision", "bf16", *WINDOW, "-o", "t.json", "--", *script(DATA))
    rows = {row["remedy"]: row for row in json.loads(Path("t.json").read_text())}
    assert done.returncode == 0 and b"minutes" in done.stderr
    assert (workers := rows["workers"])["predicted_percent"] > 50 and workers["agree"]
    assert workers["ratio"] < (0.8 if len(os.sched_getaffinity(0)) > 1 else 1.2)
    assert re.fullmatch(r"DataLoader\(..., num_workers=\d, persistent_workers=True\)", workers["line"])
    assert rows["compile"]["line"] == "model = torch.compile(model)  # Sequential" and rows["compile"]["agree"]
    assert rows["compile"]["predicted_percent"] is None and rows["bf16"]["difference"] > 0
    assert {rows[name]["reason"] for name in ("graphs", "tf32")} == {"the program ran on the CPU, without a GPU"}
    assert rows["channels_last"]["reason"] == "no finding calls for it"


def side(
    name: str, ms: list[float], losses: list[float] | None = None, outputs: list[list[float]] | None = None
) -> Side:
    losses, outputs = losses or [[]] * len(ms), outputs or [[]] * len(ms)
    values = zip(ms, losses, outputs, strict=True)
    return Side(name, [], (name,), [Sample(time, 1.0, "", [9.0, loss] if loss else [], output, name)
                                    for time, loss, output in values])  # fmt: skip


@pytest.mark.parametrize(("before", "after", "agree"), [
    ([2.0, 2.0], [2.01, 2.01], True),
    ([2.0, 2.0], [2.1, 2.1], False),
    ([2.0, 2.0], [float("nan")] * 2, False),
    ([2.0, 2.2], [2.3, 2.4], None),  # within what processes of one side differ by
    ([2.0, 2.2], [9.0, 9.0], False),
    ([float("nan")] * 2, [float("nan")] * 2, True),
    ([2.0], [3.0], None),  # one process does not tell what the program itself varies by
])  # fmt: skip
def test_losses_agree_within_one_percent_unless_the_program_itself_varies(before, after, agree):
    row = compare([side("a", [1] * len(before), before), side("b", [1] * len(before), after)]).iloc[0]
    assert (row["agree"] is agree or row["agree"] == agree) and (row["differs_from"] == 2) == (agree is False)
    mean = pytest.approx(sum(before) / len(before), nan_ok=True)
    assert row["result"] == "loss" and row["result_before"] == mean


def test_outputs_are_compared_by_their_largest_number():
    row = compare([side(name, [1, 1], None, [[first, -4.0]] * 2) for name, first in (("a", 0.0), ("b", 0.1))]).iloc[0]
    assert row["difference"] == pytest.approx(0.025) and row["agree"] == False  # noqa: E712


def test_together_are_those_that_help_with_one_way_to_compile():
    slow, fast, faster = [10, 10.1, 10.2], [8, 8.1, 8.2], [6, 6.1, 6.2]
    times = {"as it is": slow, "fused": fast, "compile": faster, "graphs": fast, "workers": slow}
    sides = [side(name, ms) for name, ms in times.items()]
    assert names_of_helpful(compare(sides)) == ("compile", "fused")
