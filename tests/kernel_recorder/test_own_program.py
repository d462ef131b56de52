"""What a recorded program keeps: its arguments, output, exit status, signals, packages. None of these imports torch."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from kernel_recorder import program as program_module
from kernel_recorder.in_process.handover import read_notes


def test_arguments_output_and_exit_status_are_the_programs_own(record):
    source = "import sys; print(sys.argv, __name__, __file__); print('to err', file=sys.stderr); sys.exit(7)"
    done = record(source, arguments=("--lr", "3", "--", "-o", "x"))
    assert done.status == 7
    assert done.out == f"['train.py', '--lr', '3', '--', '-o', 'x'] __main__ {Path('train.py').resolve()}\n"
    assert done.err.splitlines()[0] == "to err"
    assert "the program ended with exit status 7" in done.err


def test_standard_input_is_the_programs_own(tmp_path):
    command = [sys.executable, "-m", "kernel_tables", "record", "--profiler", "torch", "-o", tmp_path / "x.sqlite"]
    program = [sys.executable, "-c", "print(input()[::-1])"]
    done = subprocess.run([*command, "--", *program], input="olleh\n", text=True, capture_output=True, check=False)
    assert (done.stdout, done.returncode) == ("hello\n", 3)


@pytest.mark.parametrize("how", ["module", "script", "code"])
def test_the_recorder_is_in_a_program_however_it_is_started(record, tmp_path, how):
    source = "import sys; print('kernel_recorder.in_process.attach' in sys.modules, sys.argv[1:])\n"
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__main__.py").write_text(source)
    script = tmp_path / "train-command"
    script.write_text(f"#!{sys.executable}\n{source}")
    script.chmod(0o755)
    program = {
        "module": [sys.executable, "-m", "package", "x"], "script": [str(script), "x"],
        "code": [sys.executable, "-c", source, "x"],
    }[how]  # fmt: skip
    assert record(program=program).out == "True ['x']\n"


def test_the_program_finds_its_own_packages_and_of_ours_kernel_tables_alone(record, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "mine"))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "sitecustomize.py").write_text("import sys; sys.of_the_program = True")
    source = "import sys, importlib.util as u; print(sys.of_the_program, u.find_spec('cs336_model'), sys.path)"
    done = record(source)
    assert done.out.startswith(f"True None ['{tmp_path}', '{tmp_path / 'mine'}', ")
    assert "injected" not in done.out


def test_a_python_that_a_service_starts_after_the_recording_is_left_alone(tmp_path):
    left = {"PYTHONPATH": str(program_module.INJECTED_FOLDER), program_module.HANDOVER_VARIABLE: str(tmp_path / "gone")}
    source = "import sys; print('kernel_tables' in sys.modules)"
    command = [sys.executable, "-c", source]
    done = subprocess.run(command, env=os.environ | left, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_a_python_that_is_too_old_runs_as_always_and_says_so(tmp_path):
    source = (
        "import os, runpy, sys; sys.version_info = (3, 9, 2)\n"
        f"os.environ['{program_module.HANDOVER_VARIABLE}'] = {str(tmp_path)!r}\n"
        f"runpy.run_path({str(program_module.INJECTED_FOLDER / 'sitecustomize.py')!r})\n"
        "print('kernel_tables' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", source], capture_output=True, check=True).stdout == b"False\n"
    assert [note["event"] for note in read_notes(tmp_path)] == ["old_python"]


def test_a_program_in_a_program_is_reached_too(record):
    inner = "import sys; print('kernel_recorder.in_process.attach' in sys.modules)"
    assert record(f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])").out == "True\n"


def test_what_a_program_prints_is_not_held_back_or_kept(record, tmp_path):
    source = "import sys\nfor _ in range(256): sys.stdout.buffer.write(bytes(2**20))"
    program = ["sh", "-c", '"$0" -c "$1" | wc -c', sys.executable, source]
    assert record(program=program).out.strip() == str(2**28)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 10_000


@pytest.mark.parametrize(("number", "status"), [(signal.SIGKILL, 137), (signal.SIGSEGV, 139)])
def test_a_program_that_a_signal_ends_is_told_with_it(record, number, status):
    done = record(f"import os; os.kill(os.getpid(), {int(number)})")
    assert done.status == status
    assert f"the program was ended by {number.name}" in done.err


def test_a_signal_to_the_command_reaches_the_program(record, tmp_path):
    source = (
        "import signal, sys, time, pathlib\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\n"
        "pathlib.Path('ready').touch()\n"
        "time.sleep(60)"
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


def test_after_ctrl_c_the_command_still_tells_what_there_is(tmp_path):
    source = "import pathlib, time; pathlib.Path('ready').touch(); time.sleep(60)"
    command = [
        sys.executable,
        "-m",
        "kernel_tables",
        "record",
        "--profiler",
        "torch",
        "--",
        sys.executable,
        "-c",
        source,
    ]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:  # fmt: skip
        while not (tmp_path / "ready").exists():
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        said = process.communicate()[1]
    assert process.returncode == 130
    assert "KeyboardInterrupt" in said  # the program's own
    assert "the program did not import PyTorch" in said.splitlines()[-1]


def test_a_program_that_hangs_is_ended_at_the_time_limit(record, monkeypatch):
    monkeypatch.setattr(program_module, "ENDING_PATIENCE_S", 0.3)
    ignores = "import signal, time\n[signal.signal(n, signal.SIG_IGN) for n in (2, 15)]\ntime.sleep(60)"
    done = record(ignores, "--time-limit", "0.5")
    assert done.status == 137
    assert "the program was ended at the time limit of 0.5 s" in done.err


def test_a_program_that_trains_for_hours_can_be_ended_once_it_is_recorded(record):
    source = (
        "import os, time\nfrom pathlib import Path\nfrom kernel_recorder.in_process.handover import Notes\n"
        "notes = Notes(Path(os.environ['KERNEL_TABLES_RECORDING']))\n"
        "notes.add('open', first=6, start_s=0, torch='2', has_steps=False)\n"
        "notes.add('closed', done=3, stop_s=0)\n"
        "notes.add('saved', save_s=0)\n"
        "try: time.sleep(60)\nexcept KeyboardInterrupt: print('clears up')"
    )
    done = record(source, "--end")
    assert (done.status, done.out) == (3, "clears up\n")  # no profiler ran, so nothing is kept
    assert "the program was ended as by Ctrl-C, since its window is recorded" in done.err


ENDED = """
import os, sys, time
from pathlib import Path
from kernel_recorder.in_process.handover import Notes

notes = Notes(Path(os.environ['KERNEL_TABLES_RECORDING']))
notes.add('open', first=6, start_s=0, torch='2', has_steps=False)
notes.add('closed', done=3, stop_s=0)
notes.add('saved', save_s=0)
time.sleep(60)
"""


def test_a_program_that_is_ended_prints_no_traceback(record):
    done = record(ENDED, "--end")
    assert "Traceback" not in done.err
    assert "the program was ended as by Ctrl-C" in done.err


def test_a_recording_of_nothing_is_no_success_and_a_failure_stays_the_programs_own(record):
    assert record("print('trained')").status == 3
    assert record("raise SystemExit(7)").status == 7


def test_a_folder_that_the_program_deleted_is_the_reason(record):
    done = record("import os, shutil; shutil.rmtree(os.environ['KERNEL_TABLES_RECORDING'])")
    assert done.status == 3
    assert "the temporary folder in which the program leaves its recording was deleted while it ran" in done.err


@pytest.mark.parametrize(
    ("source", "python", "said"),
    [
        ("", (), "the program did not import PyTorch"),
        (
            "",
            ("-I",),
            "no Python of the program loaded the recorder: the program is not Python, or was started with -I, -E or -S",
        ),
        ("raise SystemExit('no data')", (), "the program did not import PyTorch"),
    ],
)
def test_where_nothing_is_recorded_the_reason_is_told_in_one_line(record, source, python, said):
    done = record(source, python=python)
    assert done.err.splitlines()[-1] == f"kernel-tables record: nothing was recorded: {said}"
    assert not done.capture.exists()


def test_a_program_without_python_runs_as_always(record):
    done = record(program=["sh", "-c", "echo hello; exit 4"])
    assert (done.status, done.out) == (4, "hello\n")
    assert "no Python of the program loaded the recorder" in done.err


def runs_nothing(record, *options, **how):
    done = record("import pathlib; pathlib.Path('ran').touch()", *options, **how)
    assert not Path("ran").exists()
    assert done.status == 2
    (line,) = done.err.splitlines()
    return line


def test_nothing_is_written_over_a_file_and_the_program_does_not_run_in_vain(record):
    Path("mine.sqlite").write_text("precious")
    assert "mine.sqlite: the file exists and is not overwritten" in runs_nothing(record, "-o", "mine.sqlite")
    assert Path("mine.sqlite").read_text() == "precious"


def test_a_folder_that_cannot_be_written_to_is_told_before_the_program_runs(record):
    assert "nowhere/x.sqlite: No such file or directory;" in runs_nothing(record, "-o", "nowhere/x.sqlite")


def test_a_read_only_folder_is_told_before_the_program_runs(record):
    line = runs_nothing(record, "-o", "/sys/x.sqlite")  # which is closed to root too
    assert re.search("/sys/x.sqlite: (Permission denied|Operation not permitted|Read-only file system);", line)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--steps", "0"], "--steps has to be at least 1"),
        (["--skip", "0"], "a step begins where the one before ends"),
        (["--calls", "--steps", "0"], "--steps has to be at least 1"),
        (["--seconds", "0"], "--seconds has to be more than 0"),
        (["--ranges", "modules:x"], "--ranges 'modules:x': expected modules, modules:DEPTH such as modules:2, or none"),
    ],
)
def test_options_that_mean_nothing_are_refused_before_the_program_runs(record, options, said):
    assert said in runs_nothing(record, *options)


@pytest.mark.parametrize(("program", "said"), [([], "there is no program to record"), (["./none"], "there is no such")])
def test_a_program_that_is_not_there_is_told_in_one_line(record, program, said):
    assert said in runs_nothing(record, program=program)


def test_a_script_without_its_python_is_told_how_it_is_run(record, tmp_path):
    (tmp_path / "train.py").write_text("")
    assert runs_nothing(record, program=["./train.py"]).endswith("a script needs its Python: python ./train.py")
