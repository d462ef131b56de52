"""Programs that run as several ranks: all of them are recorded, and they meet where nsys begins and ends."""

import json
import multiprocessing
import os
import subprocess
import sys
import time

import pytest

from kernel_tables.ranks.collectives import collectives
from kernel_tables.ranks.ranks import ranks_of
from kernel_tables.recording.inside.notes import FILE, RANK, Notes
from kernel_tables.recording.inside.ranks import Ranks
from kernel_tables.trace import Trace

STEPS = 6
TRAIN = f"""
import os, torch, torch.distributed
from torch.distributed import init_process_group

init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range({STEPS}):
    model(torch.randn(4, 64)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
torch.distributed.destroy_process_group()
"""


def ranks(number, *options):
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(number), *options]


def test_every_rank_is_recorded_in_a_capture_of_its_own(record, tmp_path):
    (tmp_path / "train.py").write_text(TRAIN)
    done = record("", "--skip", "2", "--steps", "2", program=ranks(2, "train.py"))
    assert done.status == 0
    assert "recording.sqlite: steps 3 to 4 of rank 0, process" in done.err
    assert "recording_rank1.sqlite: steps 3 to 4 of rank 1, process" in done.err
    assert "further process" not in done.err
    with Trace(done.capture) as first, Trace(tmp_path / "recording_rank1.sqlite") as second:
        traces = [first, second]
        for trace in traces:
            assert trace.ranges().set_index("range").loc["step", "instances"] == 2
            assert [one for one in trace.check(expected_steps=2) if one.severity == "error"] == []
        table = collectives(ranks_of(traces))
    # one bucket of gradients a step, on each rank, matched between them
    assert table.groupby(["rank", "step"]).size().to_dict() == {(0, 0): 1, (0, 1): 1, (1, 0): 1, (1, 1): 1}
    assert table["transfer_ns"].notna().all()
    for number in range(2):
        assert f"rank {number}: communication takes" in done.err
    assert "kernel-tables communication recording.sqlite recording_rank1.sqlite --collectives" in done.err


def test_a_capture_of_an_earlier_run_is_not_taken_for_a_rank_of_this_one(record, tmp_path):
    (tmp_path / "recording_rank1.sqlite").write_text("of another run")
    done = record(
        TRAIN.replace('"gloo"', '"gloo", init_method="tcp://localhost:0", rank=0, world_size=1'), "--skip", "1"
    )
    assert (done.status, (tmp_path / "recording_rank1.sqlite").read_text()) == (0, "of another run")
    assert "recording-2.sqlite: steps 2 to 4 of process" in done.err  # alone, so no rank is named
    assert "communication takes" not in done.err


def test_a_process_that_is_no_rank_is_not_recorded_with_ranks_and_the_other_way_round(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    assert [Notes(first).claim(as_rank=True), Notes(first).claim(as_rank=True)] == [True, True]
    assert not Notes(first).claim()
    assert [Notes(second).claim(), Notes(second).claim(as_rank=True)] == [True, False]


def rank(folder, number, late_s, order, meets=("start", "stop")):
    """A process that is a rank, and comes late to where it meets the others."""
    notes = Notes(folder)
    one = Ranks(notes)
    one.number = number
    notes.add(RANK, number=number, of=2)
    order.put((time.monotonic(), "ready", number))
    while len((folder / FILE).read_text().splitlines()) < 2:
        time.sleep(0.001)
    time.sleep(late_s)
    for what in meets:
        order.put((time.monotonic(), f"comes to {what}", number))
        one.together(what, lambda what=what: order.put((time.monotonic(), what, number)))
        order.put((time.monotonic(), f"leaves {what}", number))


def met(folder, *ranks_args):
    """What the ranks did, in the order of time."""
    context = multiprocessing.get_context("fork")
    order = context.SimpleQueue()
    processes = [context.Process(target=rank, args=(folder, *args[:2], order, *args[2:])) for args in ranks_args]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    found = []
    while not order.empty():
        found.append(order.get())
    return [(what, number) for _, what, number in sorted(found)], [process.exitcode for process in processes]


def test_one_rank_acts_for_all_once_all_have_come_and_all_wait_for_it(tmp_path):
    done, codes = met(tmp_path, (0, 0.0), (1, 0.3))
    assert codes == [0, 0]
    for what in ("start", "stop"):
        (acted,) = [place for place, (event, _) in enumerate(done) if event == what]
        assert {number for event, number in done[:acted] if event == f"comes to {what}"} == {0, 1}
        assert not [number for event, number in done[:acted] if event == f"leaves {what}"]


def test_a_rank_that_has_ended_is_not_waited_for(tmp_path):
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    note = {"event": RANK, "pid": int(gone.stdout), "number": 1, "of": 2}
    (tmp_path / FILE).write_text(json.dumps(note) + "\n")
    began = time.monotonic()
    done, codes = met(tmp_path, (0, 0.0))
    assert codes == [0]
    assert ("start", 0) in done
    assert time.monotonic() - began < 5


def test_a_rank_that_does_not_come_is_waited_for_so_long_and_no_longer(tmp_path, monkeypatch):
    monkeypatch.setattr("kernel_tables.recording.inside.ranks.PATIENCE_S", 0.2)
    Notes(tmp_path).add(RANK, number=0, of=2)  # this process, which lives and never comes
    done, codes = met(tmp_path, (1, 0.0, ("start",)))
    assert codes == [0]
    assert ("leaves start", 1) in done


def test_a_process_that_is_no_rank_meets_nobody(tmp_path):
    called = []
    Ranks(Notes(tmp_path)).together("start", lambda: called.append(os.getpid()))
    assert (called, list(tmp_path.iterdir())) == ([os.getpid()], [])


@pytest.mark.parametrize("fails", [False, True])
def test_ranks_go_on_where_the_one_that_acts_fails(tmp_path, fails):
    one = Ranks(Notes(tmp_path))
    one.number = 0
    if fails:
        with pytest.raises(ZeroDivisionError):
            one.together("start", lambda: 1 // 0)
    else:
        one.together("start", lambda: None)
    other = Ranks(Notes(tmp_path))
    other.number = 1
    began = time.monotonic()
    other.together("start", lambda: pytest.fail("it is done already"))
    assert time.monotonic() - began < 5
