"""Programs that run as several ranks: all of them are recorded, and they meet where nsys begins and ends."""

import json
import multiprocessing
import os
import subprocess
import sys
import time

import pytest

from kernel_recorder.in_process.handover import NOTES_FILE, RANK, Notes
from kernel_recorder.in_process.ranks import RankCoordinator
from kernel_recorder.in_process.recorder import Recorder
from kernel_tables.__main__ import main
from kernel_tables.ranks.collectives import collectives
from kernel_tables.ranks.ranks import ranks_of
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


def test_every_rank_is_recorded_in_a_capture_of_its_own(record, tmp_path, capfd):
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
            assert [finding for finding in trace.check(expected_steps=2) if finding.severity == "error"] == []
        table = collectives(ranks_of(traces))
    # one bucket of gradients a step, on each rank, matched between them
    assert table.groupby(["rank", "step"]).size().to_dict() == {(0, 0): 1, (0, 1): 1, (1, 0): 1, (1, 1): 1}
    assert table["transfer_ns"].notna().all()
    for number in range(2):
        assert f"rank {number}: communication takes" in done.err
    assert "kernel-tables communication recording.sqlite recording_rank1.sqlite --collectives" in done.err
    assert main(["communication", "recording_rank1.sqlite"]) == 0  # some of the ranks: nothing is compared
    assert "1 of the 2 ranks of the run are given: transfer, waiting and bandwidth need" in capfd.readouterr().err


def test_a_capture_of_an_earlier_run_is_not_taken_for_a_rank_of_this_one(record, tmp_path):
    (tmp_path / "recording_rank1.sqlite").write_text("of another run")
    done = record(
        TRAIN.replace('"gloo"', '"gloo", init_method="tcp://localhost:0", rank=0, world_size=1'),
        "--skip",
        "1",
        "--steps",
        "3",
    )
    assert (done.status, (tmp_path / "recording_rank1.sqlite").read_text()) == (0, "of another run")
    assert "recording-2.sqlite: steps 2 to 4 of process" in done.err  # alone, so no rank is named
    assert "communication takes" not in done.err


def claims(folder, monkeypatch, *runs):
    """Whether each of several processes is recorded, given the run of which it is a rank."""
    are_recorded = []
    for pid, run in enumerate(runs, 1_000_000):
        monkeypatch.setattr(os, "getpid", lambda pid=pid: pid)
        are_recorded.append(Notes(folder).claim(run))
    return are_recorded


def test_with_the_first_process_the_ranks_of_its_run_are_recorded_and_no_other(tmp_path, monkeypatch):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    assert claims(tmp_path / "a", monkeypatch, "run 1", "run 1", None, "run 2", "run 1") == [
        True,
        True,
        False,
        False,
        True,
    ]
    assert claims(tmp_path / "b", monkeypatch, None, "run 1", None) == [True, False, False]


def rank(folder, number, late_s, order, meets=("start", "stop"), of=2):
    """A process that is a rank, and comes late to where it meets the others."""
    notes = Notes(folder)
    coordinator = RankCoordinator(notes)
    coordinator.join("a run", number, of)
    while len((folder / NOTES_FILE).read_text().splitlines()) < of:
        time.sleep(0.001)
    time.sleep(late_s)
    for point in meets:
        order.put((time.monotonic(), f"comes to {point}", number))
        coordinator.call_once(point, lambda point=point: order.put((time.monotonic(), point, number)))
        order.put((time.monotonic(), f"leaves {point}", number))


def met(folder, *ranks_args):
    """What the ranks did, in the order of time."""
    context = multiprocessing.get_context("fork")
    order = context.SimpleQueue()
    processes = [context.Process(target=rank, args=(folder, *args[:2], order, *args[2:])) for args in ranks_args]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    events = []
    while not order.empty():
        events.append(order.get())
    return [(event, number) for _, event, number in sorted(events)], [process.exitcode for process in processes]


def test_one_rank_acts_for_all_once_all_have_come_and_all_wait_for_it(tmp_path):
    events, codes = met(tmp_path, (0, 0.0), (1, 0.3))
    assert codes == [0, 0]
    for point in ("start", "stop"):
        (call_index,) = [index for index, (event, _) in enumerate(events) if event == point]
        assert {number for event, number in events[:call_index] if event == f"comes to {point}"} == {0, 1}
        assert not [number for event, number in events[:call_index] if event == f"leaves {point}"]


def test_a_rank_that_has_ended_is_not_waited_for(tmp_path):
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    note = {"event": RANK, "run": "a run", "pid": int(gone.stdout), "number": 1, "of": 2}
    (tmp_path / NOTES_FILE).write_text(json.dumps(note) + "\n")
    began = time.monotonic()
    events, codes = met(tmp_path, (0, 0.0))
    assert codes == [0]
    assert ("start", 0) in events
    assert time.monotonic() - began < 5


def test_a_rank_that_does_not_come_is_waited_for_so_long_and_no_longer(tmp_path, monkeypatch):
    monkeypatch.setattr("kernel_recorder.in_process.ranks.RANK_WAIT_S", 0.2)
    Notes(tmp_path).add(RANK, run="a run", number=0, of=2)  # this process, which lives and never comes
    events, codes = met(tmp_path, (1, 0.0, ("start",)))
    assert codes == [0]
    assert ("leaves start", 1) in events


def test_a_process_that_is_no_rank_meets_nobody(tmp_path):
    called = []
    RankCoordinator(Notes(tmp_path)).call_once("start", lambda: called.append(os.getpid()))
    assert (called, list(tmp_path.iterdir())) == ([os.getpid()], [])


@pytest.mark.parametrize("fails", [False, True])
def test_ranks_go_on_where_the_one_that_acts_fails(tmp_path, fails):
    coordinator = RankCoordinator(Notes(tmp_path))
    coordinator.join("a run", 0, 2)
    if fails:
        with pytest.raises(ZeroDivisionError):
            coordinator.call_once("start", lambda: 1 // 0)
    else:
        coordinator.call_once("start", lambda: None)
    other_coordinator = RankCoordinator(Notes(tmp_path))
    other_coordinator.join("a run", 1, 2)
    began = time.monotonic()
    other_coordinator.call_once("start", lambda: pytest.fail("it is done already"))
    assert time.monotonic() - began < 5


def test_where_the_rank_that_acts_for_all_is_killed_another_takes_its_place(tmp_path):
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    (tmp_path / "start-0-acts").write_bytes(gone.stdout.strip())
    began = time.monotonic()
    events, codes = met(tmp_path, (0, 0.0, ("start",), 2), (1, 0.1, ("start",), 2))
    assert codes == [0, 0]
    assert [event for event, _ in events].count("start") == 1
    assert time.monotonic() - began < 5


TWICE = """
import os, sys, torch, torch.distributed as dist, torch.multiprocessing as mp

def work(rank, port):
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=2)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    child = os.fork() if rank == 1 else None
    if child == 0:  # trains by itself
        alone = torch.optim.SGD(torch.nn.Linear(8, 8).parameters(), lr=0.1)
        for _ in range(4):
            alone.step()
        os._exit(0)
    for _ in range(4):
        model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
    if child:
        os.waitpid(child, 0)
    dist.destroy_process_group()

if __name__ == "__main__":
    import socket
    for _ in range(2):
        with socket.socket() as free:
            free.bind(("localhost", 0))
            port = free.getsockname()[1]
        mp.spawn(work, args=(port,), nprocs=2)
"""


def test_ranks_of_another_run_and_children_of_ranks_are_counted_and_not_recorded(record, tmp_path):
    done = record(TWICE, "--skip", "1", "--steps", "2")
    assert done.status == 0
    assert sorted(path.name for path in tmp_path.glob("*.sqlite")) == ["recording.sqlite", "recording_rank1.sqlite"]
    # the two ranks of the second run, and a child in each run
    assert "4 further processes came to such a window" in done.err
    for number, capture in enumerate((done.capture, tmp_path / "recording_rank1.sqlite")):
        assert f"{capture.name}: steps 2 to 3 of rank {number}, process" in done.err
        with Trace(capture) as trace:
            assert (trace.metadata["RECORDED_RANK"], trace.metadata["RECORDED_RANKS"]) == (str(number), "2")


UNEVEN = """
import sys, time, torch, torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
if rank == 0:  # takes no step
    time.sleep(float(sys.argv[1]))
else:
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
"""


def test_a_rank_that_comes_to_no_window_is_told_and_the_others_keep_their_numbers(record, tmp_path):
    (tmp_path / "train.py").write_text(UNEVEN)
    done = record("", "--skip", "1", "--steps", "2", program=ranks(2, "train.py", "0"))
    assert "nothing was recorded of rank 0: the program took no step of a PyTorch optimizer" in done.err
    assert "recording_rank1.sqlite: steps 2 to 3 of rank 1" in done.err
    assert not done.capture.exists()


def test_the_end_does_not_wait_for_ever_for_a_rank_that_comes_to_no_window(record, tmp_path, monkeypatch):
    monkeypatch.setattr("kernel_recorder.outcome.RANK_WAIT_S", 0.5)
    (tmp_path / "train.py").write_text(UNEVEN)
    began = time.monotonic()
    done = record("", "--skip", "1", "--steps", "2", "--end", program=ranks(2, "train.py", "300"))
    assert done.status == 0
    assert time.monotonic() - began < 100
    assert "recording_rank1.sqlite: steps 2 to 3 of rank 1" in done.err


def test_a_launcher_does_not_take_the_window_from_its_ranks(tmp_path):
    class Profiler:
        is_taken = False
        start = stop = save = staticmethod(lambda *_, **__: None)

    launcher = RankCoordinator(Notes(tmp_path))
    (tmp_path / NOTES_FILE).write_text(
        json.dumps({"event": RANK, "run": "a run", "pid": os.getppid(), "number": 0, "of": 2}) + "\n"
    )
    recorder = Recorder(Notes(tmp_path), launcher, Profiler(), None)
    assert not recorder.open()
    assert Notes(tmp_path).claim("a run")
