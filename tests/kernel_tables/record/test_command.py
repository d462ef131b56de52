"""What a recorded program keeps, and what the command says of it. None of these programs imports torch."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernel_tables.record import program as program_module
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_and_standard_input_are_the_programs_own_and_the_command_tells_what_there_is(tmp_path, number):
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
        if number == signal.SIGINT:
            os.killpg(process.pid, number)  # as a terminal does
        else:
            process.send_signal(number)
        said = process.communicate()[1]
    assert process.returncode == 128 + number and f"the program was ended by {number.name}" in said
    assert "the program did not import PyTorch" in said.splitlines()[-1]


def test_a_program_that_trains_for_hours_is_ended_once_it_is_recorded(record, monkeypatch):
    monkeypatch.setattr(program_module, "ENDING_PATIENCE_S", 0.3)
    source = (
        "import os, signal, time\nfrom pathlib import Path\nfrom kernel_tables.record.handover import Notes\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "notes = Notes(Path(os.environ['KERNEL_TABLES_RECORDING']))\n"
        "notes.add('open', first=6, by='optimizer', torch='2', has_steps=False)\n"
        "notes.add('closed', done=3)\nnotes.add('saved')\ntime.sleep(60)"
    )
    done = record(source, "--end")
    assert done.status == 3  # no profiler ran, so nothing is kept
    assert "the program was ended as by Ctrl-C, since its window is recorded" in done.err


NOTHING = "kernel-tables record: nothing was recorded: "
NO_RECORDER = "no Python of the program loaded the recorder, which needs 3.11 or newer without -I, -E and -S"


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
    ("options", "program", "said"),
    [
        (["--steps", "0"], None, "--steps has to be at least 1"),
        (["--skip", "0"], None, "a step begins where the one before ends"),
        (["--nsys-options=--trace=osrt"], None, "--nsys-options: this machine records by PyTorch's profiler"),
        (["-o", "mine.sqlite"], None, "mine.sqlite: the file exists and is not overwritten"),
        (["-o", "nowhere/x.sqlite"], None, "nowhere/x.sqlite: No such file or directory;"),
        ([], [], "there is no program"),
        ([], ["./none"], "no such program"),
        ([], ["./programs.py"], "a script needs python before it"),
    ],
)
def test_what_cannot_be_recorded_is_refused_in_one_line_before_the_program_runs(record, options, program, said):
    Path("mine.sqlite").write_text("precious")
    done = record("import pathlib; pathlib.Path('ran').touch()", *options, program=program)
    assert done.status == 2 and said in done.err and len(done.err.splitlines()) == 1
    assert not Path("ran").exists() and Path("mine.sqlite").read_text() == "precious"


OPENED = {"event": "open", "pid": 7, "first": 6, "torch": "2.13", "has_steps": True}
OPENED |= {"by": "optimizer", "name": "SGD"}
CLOSED = {"event": "closed", "pid": 7, "done": 3, "step_before_s": 0.01}
SAVED = {"event": "saved", "pid": 7, "unix_s": 0.0}


def outcome(*notes, returncode=0, **settings):
    return Outcome(Settings(**settings), list(notes), ProgramEnd(returncode))


ENDED, UNTIL_END = {"cut_by": "the program ended (KeyboardInterrupt)"}, "from step 6 of SGD until the program ended"
BY_MODEL, BY_RANGE = {"by": "module", "name": "GPT\x1b"}, {"by": "range", "name": "range 'a'"}
GRAPH = [
    {name: value for name, value in OPENED.items() if name != "first"},
    {"event": "steps", "pid": 7, "first": 6, "by": "graph", "name": "a CUDA graph"},
]


@pytest.mark.parametrize(
    ("settings", "notes", "recorded", "remark"),
    [
        ({}, [OPENED, CLOSED | {"done": 1}], "step 6 of SGD", ""),
        ({}, [OPENED | BY_MODEL, CLOSED], "calls 6 to 8 of GPT\\x1b", ""),
        ({"window": RANGE, "range": "a"}, [OPENED | BY_RANGE, CLOSED], "instances 6 to 8 of range 'a'", ""),
        ({}, [*GRAPH, CLOSED], "replays 6 to 8 of a CUDA graph", "the capture begins earlier"),
        ({}, [OPENED, CLOSED | ENDED], "steps 6 to 8 and a part of step 9 of SGD", "the program ended (KeyboardI"),
        ({}, [OPENED, CLOSED | ENDED | {"done": 0}], "a part of step 6 of SGD", "no step in it is complete, so take a"),
        ({}, [OPENED], UNTIL_END, "the window ended early: the program ended;"),
    ],
)
def test_every_window_is_named_with_what_to_know_about_it(settings, notes, recorded, remark):
    made = outcome(*notes, SAVED, **settings)
    assert made.window_phrase() == f"{recorded}, process 7, by PyTorch's profiler"
    assert any(remark in said for said in made.remarks()) if remark else not list(made.remarks())
    assert made.recording("").ended_in_step == ("part of" in recorded or "from step" in recorded)


STARTED, EXIT = [{"event": "python"}, {"event": "torch"}], {"event": "exit", "repeated": []}
CALLED = {"event": "exit", "repeated": [["module", "GPT", 2]]}


@pytest.mark.parametrize(
    ("notes", "reason"),
    [
        (STARTED, "was ended by SIGKILL before a window began"),
        ([*STARTED, CALLED], "and the program made 2 calls of GPT; take a smaller --skip"),
        ([*STARTED, EXIT], "and the program made none of which PyTorch tells; take"),
        ([{"event": "refused", "reason": "CUPTI\x1b is taken"}], "could not record: CUPTI\\x1b is taken"),
        ([OPENED], "was ended by SIGKILL before PyTorch's profiler wrote its data"),
    ],
)
def test_why_there_is_no_recording_is_told(notes, reason):
    made = outcome(*notes, returncode=-9)
    assert not made.has_recording and reason in made.missing_reason()


def test_ranks_are_told_in_their_order_and_expected_until_they_have_ended(tmp_path):
    notes = Notes(tmp_path)
    for number, pid in ((1, 11), (0, 10)):
        for event in ("rank", "open"):
            notes.add(event, pid=pid, run="a run", number=number, of=2, has_steps=True)
    notes.add("saved", pid=11)
    found = read_notes(tmp_path)
    assert [made.rank_phrase for made in outcomes_of(Settings(), found, ProgramEnd(0))] == [" of rank 0", " of rank 1"]
    assert not is_recorded(found)
    notes.add("exit", pid=10)
    assert is_recorded(read_notes(tmp_path))
    assert ProgramEnd(139).phrase == ProgramEnd(-11).phrase == "was ended by SIGSEGV"
