"""What a recorded program keeps, and what the command says of it. None of these programs imports torch."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from kernel_tables.record import program as program_module
from kernel_tables.record.command import program_text
from kernel_tables.record.handover import RANGE, Notes, Settings, read_notes
from kernel_tables.record.outcome import Outcome, is_recorded, outcomes_of
from kernel_tables.record.program import ProgramEnd

ROOT = Path(__file__).parents[3]


def test_arguments_output_environment_and_exit_status_are_the_programs_own(record, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "mine"))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "sitecustomize.py").write_text("import sys; sys.of_the_program = True")
    source = (
        "import sys, importlib.util as u; print('to err', file=sys.stderr)\n"
        "print(sys.argv, __name__, sys.of_the_program, u.find_spec('cs336_model'), sys.path)\nsys.exit(7)"
    )
    done = record(source, arguments=("--lr", "3", "--", "-o", "x"))
    folder = str(tmp_path)
    assert done.status == 7
    assert done.out.startswith(
        f"['train.py', '--lr', '3', '--', '-o', 'x'] __main__ True None ['{folder}', '{folder}/mine'"
    )
    assert "injected" not in done.out
    assert done.err.splitlines()[:2] == ["to err", "kernel-tables record: the program ended with exit status 7"]


def test_the_recorder_is_in_a_script_and_in_a_child_of_the_program(record, tmp_path):
    source = "import sys; print('kernel_tables.record.handover' in sys.modules, sys.argv[1:])\n"
    script = tmp_path / "train-command"
    script.write_text(f"#!{sys.executable} -u\nimport subprocess\n{source}")
    script.chmod(0o755)
    child = [sys.executable, "-c", source, "y"]
    script.write_text(f"{script.read_text()}subprocess.run({child!r})")
    assert record(program=[str(script), "x"]).out.splitlines() == ["True ['x']", "True ['y']"]


@pytest.mark.parametrize("version", [(3, 9, 2), None])
def test_a_python_that_is_too_old_or_starts_after_the_recording_runs_as_always(tmp_path, version):
    folder, variable = tmp_path if version else tmp_path / "gone", program_module.HANDOVER_VARIABLE
    source = (
        f"import os, runpy, sys; sys.version_info = {version} or sys.version_info\n"
        f"os.environ['{variable}'] = {str(folder)!r}\n"
        f"runpy.run_path({str(program_module.INJECTED_FOLDER / 'sitecustomize.py')!r})\n"
        "print('kernel_tables' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", source], capture_output=True, check=True).stdout == b"False\n"
    assert [note["event"] for note in read_notes(folder)] == (["old_python"] if version else [])


def test_a_signal_to_the_command_reaches_the_program(record, tmp_path):
    source = (
        "import signal, sys, time, pathlib\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\n"
        "pathlib.Path('ready').touch()\ntime.sleep(60)"
    )

    def send():
        while not (tmp_path / "ready").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    sender = threading.Thread(target=send)
    sender.start()
    assert record(source).status == 5
    sender.join()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_after_ctrl_c_the_command_still_tells_what_there_is_and_standard_input_is_the_programs_own(tmp_path):
    source = "import pathlib, time; pathlib.Path('ready').write_text(input()); time.sleep(60)"
    command = [sys.executable, "-m", "kernel_tables", "record", "--profiler", "torch", "--"]
    with subprocess.Popen(
        [*command, sys.executable, "-c", source], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        process.stdin.write("typed\n")
        process.stdin.flush()
        while not (tmp_path / "ready").exists() or (tmp_path / "ready").read_text() != "typed":
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        said = process.communicate()[1]
    assert process.returncode == 130
    assert "KeyboardInterrupt" in said  # the program's own
    assert "the program did not import PyTorch" in said.splitlines()[-1]


def test_a_program_that_hangs_is_ended_at_the_time_limit(record, monkeypatch):
    monkeypatch.setattr(program_module, "ENDING_PATIENCE_S", 0.3)
    done = record("", "--time-limit", "0.5", program=["sh", "-c", "trap '' INT TERM; while :; do sleep 0.1; done"])
    assert done.status == 137 and "the program was ended at the time limit of 0.5 s" in done.err


def test_a_program_that_trains_for_hours_is_ended_once_it_is_recorded(record):
    source = (
        "import os, time\nfrom pathlib import Path\nfrom kernel_tables.record.handover import Notes\n"
        "notes = Notes(Path(os.environ['KERNEL_TABLES_RECORDING']))\n"
        "notes.add('open', first=6, start_s=0, torch='2', has_steps=False)\n"
        "notes.add('closed', done=3, stop_s=0)\nnotes.add('saved', save_s=0)\ntime.sleep(60)"
    )
    assert record(source, "--end").status == 3  # no profiler ran, so nothing is kept


NOTHING = "kernel-tables record: nothing was recorded: "
NO_RECORDER = "no Python of the program loaded the recorder: the program is not Python, or was started with -I, -E"


@pytest.mark.parametrize(
    ("how", "status", "said"),
    [
        ({"source": "raise SystemExit('no data')"}, 1, "the program did not import PyTorch"),
        ({"source": "", "python": ("-I",)}, 3, NO_RECORDER),
        ({"program": ["sh", "-c", "kill -9 $$"]}, 137, NO_RECORDER),
    ],
)
def test_where_nothing_is_recorded_the_reason_is_told_in_one_line(record, how, status, said):
    done = record(**how)
    assert done.status == status and done.err.splitlines()[-1].startswith(f"{NOTHING}{said}")
    assert not (done.folder / "recording.sqlite").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--steps", "0"], "--steps has to be at least 1"),
        (["--skip", "0"], "a step begins where the one before ends"),
        (["--ranges", "modules:x"], "--ranges 'modules:x': expected modules, modules:DEPTH such as modules:2, or none"),
        (["--nsys-options=--trace=osrt"], "--nsys-options: this machine records by PyTorch's profiler"),
        (["-o", "mine.sqlite"], "mine.sqlite: the file exists and is not overwritten"),
        (["-o", "nowhere/x.sqlite"], "nowhere/x.sqlite: No such file or directory;"),
    ],
)
def test_what_cannot_be_recorded_is_refused_before_the_program_runs(record, options, said):
    Path("mine.sqlite").write_text("precious")
    done = record("import pathlib; pathlib.Path('ran').touch()", *options)
    assert done.status == 2 and said in done.err and len(done.err.splitlines()) == 1
    assert not Path("ran").exists() and Path("mine.sqlite").read_text() == "precious"


@pytest.mark.parametrize(
    ("program", "said"),
    [([], "there is no program"), (["./none"], "there is no such"), (["./programs.py"], "python ./programs.py")],
)
def test_a_program_that_is_not_there_is_told_in_one_line(record, program, said):
    done = record(program=program)
    assert done.status == 2 and said in done.err and len(done.err.splitlines()) == 1


def test_the_command_line_is_kept_without_what_may_be_private():
    words = ["/home/me/bin/python", "/home/me/train.py", "--lr", "3e-4", "--api-key", "hf_secret", "--data=/mnt/data"]
    assert program_text(words) == "python train.py"


OPENED = {"event": "open", "pid": 7, "first": 6, "start_s": 0.25, "torch": "2.13", "has_steps": True}
CLOSED = {"event": "closed", "pid": 7, "done": 3, "stop_s": 0.5, "step_before_s": 0.01, "step_within_s": 0.012}
SAVED = {"event": "saved", "pid": 7, "save_s": 1.0, "unix_s": 0.0}


def outcome(*notes, returncode=0, **settings):
    return Outcome(Settings(**settings), list(notes), ProgramEnd(returncode))


def test_a_whole_recording_says_what_it_holds_and_what_it_cost():
    whole = outcome(OPENED, CLOSED, SAVED)
    assert whole.has_recording and whole.expected_steps == 3 and list(whole.remarks()) == []
    assert whole.window_phrase() == "steps 6 to 8 of process 7, by PyTorch's profiler"
    assert list(whole.cost_sentence()) == [
        "recording took 1.75 s of the program's time: 250 ms to begin, 500 ms to stop, 1.00 s to write;"
        " steps take 1.20 times as long in the window as before it"
    ]


ENDED, UNTIL_END = {"ended": True, "error": "KeyboardInterrupt"}, "from step 6 until the program ended"
GRAPH = [
    {name: value for name, value in OPENED.items() if name != "first"},
    {"event": "steps", "pid": 7, "first": 6, "by": "graph", "name": "a CUDA graph"},
]


@pytest.mark.parametrize(
    ("settings", "notes", "recorded", "remark"),
    [
        ({}, [OPENED, CLOSED | {"done": 1}], "step 6", ""),
        ({}, [OPENED | {"by": "module", "name": "GPT\x1b"}, CLOSED], "calls 6 to 8 of GPT\\x1b", "a step is a call of"),
        ({"window": RANGE, "range": "a\x1b"}, [OPENED, CLOSED], "instances 6 to 8 of range 'a\\x1b'", ""),
        ({}, [*GRAPH, CLOSED], "replays 6 to 8 of a CUDA graph", "the capture begins earlier"),
        ({}, [OPENED, CLOSED | ENDED], "steps 6 to 8 and a part of step 9", "ended inside the window (KeyboardInterr"),
        ({}, [OPENED, CLOSED | ENDED | {"done": 0}], "a part of step 6", "ended inside the window"),
        ({}, [OPENED], UNTIL_END, "ended inside the window"),
        (
            {},
            [OPENED, CLOSED | {"compilations": 2}],
            "steps 6 to 8",
            "torch.compile compiled 2 graphs inside the window",
        ),
    ],
)
def test_every_window_is_named_with_what_to_know_about_it(settings, notes, recorded, remark):
    made = outcome(*notes, SAVED, **settings)
    assert made.window_phrase() == f"{recorded} of process 7, by PyTorch's profiler"
    assert any(remark in said for said in made.remarks()) if remark else not list(made.remarks())
    assert made.recording("").ended_in_step == ("part of" in recorded or "from step" in recorded)
    empty = "the program ended before step 6 launched anything; take a smaller --skip"
    assert made.recording("").reason_if_empty == (empty if recorded in ("a part of step 6", UNTIL_END) else "")


STARTED = [{"event": "python"}, {"event": "torch"}]
WITHOUT = [*STARTED, {"event": "exit", "reached": 0}]


@pytest.mark.parametrize(
    ("settings", "notes", "reason"),
    [
        ({}, STARTED, "was ended by SIGKILL before a window began"),
        (
            {},
            [*STARTED, {"event": "exit", "reached": 2, "repeated": [["module", "GPT", 2]]}],
            "the window starts after step 5, and the program made 2 calls of GPT; take a smaller --skip",
        ),
        ({}, WITHOUT, "the program took no step of a PyTorch optimizer, and called no model; record a range"),
        (
            {},
            [*WITHOUT, {"event": "exit", "has_optimizer": True}],
            "PyTorch tells of no step of it",
        ),
        ({}, [{"event": "refused", "reason": "CUPTI\x1b is taken"}], "could not record: CUPTI\\x1b is taken"),
        ({}, [OPENED], "was ended by SIGKILL before PyTorch's profiler wrote its data"),
        (
            {"window": RANGE, "range": "stepp", "skip": 0},
            WITHOUT,
            "instance 1 of range 'stepp', and the program opened 0",
        ),
    ],
)
def test_why_there_is_no_recording_is_told(settings, notes, reason):
    made = outcome(*notes, returncode=-9, **settings)
    assert not made.has_recording and reason in made.missing_reason()


def test_ranks_are_told_in_their_order_and_expected_until_they_have_ended(tmp_path):
    notes = Notes(tmp_path)
    for number, pid in ((1, os.getpid()), (0, os.getppid())):
        for event in ("rank", "open"):
            notes.add(event, pid=pid, run="a run", number=number, of=2, has_steps=True)
    notes.add("saved")
    found = read_notes(tmp_path)
    assert [made.rank for made in outcomes_of(Settings(), found, ProgramEnd(0))] == [0, 1]
    assert not is_recorded(found)
    notes.add("exit", pid=os.getppid())
    assert is_recorded(read_notes(tmp_path))
    assert ProgramEnd(139).phrase == ProgramEnd(-11).phrase == "was ended by SIGSEGV"
