"""measure.py and the runner around a fake program, a fake nsys and a fake ncu: files, ends, locks, and nothing left."""

import gzip
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from cs336_model.results import read_result
from cs336_model.spec import Spec
from kernel_tables.counters import read_counters
from workflow.runner import choose_window

ROOT = Path(__file__).parents[2]
FAKES, CAPTURES = ROOT / "tests/fakes", ROOT / "tests/captures"
# measure.py, with a fake in place of the measured program, of the digest of its code and, if told, of the GPU
DRIVER = f"""
import os, sys
from pathlib import Path
from workflow import freshness, runner
runner.PROGRAM = [sys.executable, {str(FAKES / "fake_program.py")!r}]
freshness.digest_measured = lambda *told: Path("code").read_text()
if "FAKE_GPU" in os.environ:
    freshness.find_gpus = lambda: ([os.environ["FAKE_GPU"]], "580.1")
    freshness.find_torch = lambda: "2.11"
from workflow.scripts import measure
measure.main()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """The working folder, with fakes of nsys and ncu on PATH in `bin`."""
    (tmp_path / "bin").mkdir()
    for name in ("nsys", "ncu"):
        text = (FAKES / name).read_text().replace("/usr/bin/env python3", sys.executable)
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "bin/report").write_bytes(gzip.decompress((CAPTURES / "tiny_2025.3.1.sqlite.gz").read_bytes()))
    shutil.copy(CAPTURES / "ncu_2025.3.1.csv", tmp_path / "bin/table")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (tmp_path / "code").write_text("the code")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def start(stage: str = "timing", program: str = "ends well", limit: float = 20, prefix=(), gpu=False, **changes):
    """measure.py, running in the working folder; `prefix` are words before its command."""
    Path("program").write_text(program)
    captures = {"capture": "capture.sqlite", "memory": "memory_history.json.gz", "counters": "ncu.csv"}
    facts = {"model": "nano", "mode": "train_step", "constructor": "mine:Model", "arguments": {"width": 8}} | changes
    key = {"spec": msgspec.to_builtins(Spec(run="nano", stage=stage, **facts)), "code": "the code"}
    outputs = [f"results/{name}" for name in (f"{stage}.json", captures.get(stage)) if name]
    words = ["--key", json.dumps(key), "--log", f"logs/{stage}.log", "--time-limit", str(limit), "--outputs", *outputs]
    environment = os.environ | ({"FAKE_GPU": "NVIDIA H200"} if gpu else {})
    command = [*prefix, sys.executable, "-c", DRIVER, *words]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)


def measure(stage: str = "timing", program: str = "ends well", **told):
    """(exit status, standard error, result or None) of measure.py, which leaves no process and nothing unfinished."""
    process = start(stage, program, **told)
    said = process.communicate(timeout=60)[1]
    path = Path(f"results/{stage}.json")
    assert not alive() and not list(Path("results").glob(".*"))
    return process.returncode, said, read_result(path) if path.exists() else None


def alive() -> list[int]:
    """The processes of fake programs that run, after a second at most for them to end."""
    pids = [int(pid) for path in map(Path, ("pids", "bin/agent")) if path.exists() for pid in path.read_text().split()]
    for _ in range(50):
        if not (running := [pid for pid in pids if is_running(pid)]):
            return []
        time.sleep(0.02)
    return running


def is_running(pid: int) -> bool:
    try:
        return "Z (" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def wait_for(path: str) -> None:
    deadline = time.monotonic() + 20
    while not (list(Path().glob(path))):
        assert time.monotonic() < deadline, f"{path} does not appear"
        time.sleep(0.02)


def files() -> set[str]:
    return {str(path.relative_to("results")) for path in Path("results").rglob("*") if path.is_file()}


def test_a_result_has_its_key_and_stands_alone_when_it_is_complete(folder):
    status, said, result = measure()
    assert (status, said) == (0, "") and files() == {"timing.json"}
    assert result.status == "complete" and result.key["code"] == "the code" and result.key["torch"]
    assert result.key["spec"]["run"] == "nano" and result.started_utc.endswith("+00:00")
    assert Path("logs/timing.log").read_text() == "fake program: ends well\n"


def test_a_crash_fails_with_the_end_of_the_log_and_without_a_result(folder):
    status, said, result = measure(program="crashes")
    assert status == 1 and result is None and files() == set()
    assert said.startswith(
        "results/timing.json: the measured program ended with exit status 1; the end of its log logs/timing.log"
    )
    assert said.endswith("RuntimeError: a defect of the model\n") and "Traceback" not in said.splitlines()[0]


def test_a_run_at_its_time_limit_is_a_result_and_to_wait_for_others_does_not_count(folder):
    status, _, result = measure(program="hangs", limit=0.3)
    assert status == 0 and result.status == "stopped"
    assert result.reason.startswith("stopped at the time limit of 0.3 s")
    assert measure(program="waits before and after its device", limit=0.3)[2].status == "complete"


def test_processes_that_a_program_leaves_in_their_own_sessions_are_ended(folder):
    assert measure(program="leaves a child")[2].status == "complete"
    assert len(Path("pids").read_text().split()) == 2


def test_a_signal_ends_everything(folder):
    process = start("capture", "hangs", backend="nsys")
    wait_for("results/.*/started")
    process.terminate()
    assert "ended by SIGTERM" in process.communicate(timeout=20)[1]
    assert process.returncode == 1 and not alive() and files() == set()


def test_what_a_killed_measurement_left_is_removed_by_the_next(folder):
    process = start(program="hangs")
    wait_for("results/.*/started")
    process.kill()
    process.communicate()
    os.kill(int(Path("pids").read_text()), signal.SIGKILL)  # a measured program does that itself
    assert list(Path("results").glob(".timing-*")) and measure()[2].status == "complete"


def test_it_ends_with_snakemake(folder):
    parent = "import subprocess, sys; subprocess.run(sys.argv[1:])"
    process = start(program="hangs", prefix=[sys.executable, "-c", parent])
    wait_for("results/.*/started")
    process.kill()
    process.communicate(timeout=20)  # until standard error is closed
    assert not alive() and not list(Path("results").iterdir())


def test_the_program_sees_what_it_needs_and_what_is_listed(folder, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "s3cr3t")
    monkeypatch.setenv("LANG", "C.UTF-8")
    measure(environment={"OMP_NUM_THREADS": "3", "LANG": None})
    seen = json.loads(Path("environment").read_text())
    assert seen["OMP_NUM_THREADS"] == "3" and seen["PATH"] == os.environ["PATH"]
    assert not {"SECRET_TOKEN", "LANG", "KERNEL_TABLES_LOCKS"} & set(seen)


@pytest.mark.parametrize(("code", "program"), [("another", "ends well"), ("the code", "is edited")])
def test_code_that_is_edited_after_planning_gives_no_result(folder, code, program):
    Path("code").write_text(code)
    status, said, result = measure(program=program)
    assert status == 1 and result is None and Path("pids").exists() == (program == "is edited")
    assert said == "results/timing.json: the measured code was edited after this job was planned; run snakemake again\n"


def test_a_full_disk_gives_one_line_and_leaves_nothing(folder):
    script = "import os, resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))"
    prefix = [sys.executable, "-c", f"{script}; os.execvp(sys.argv[1], sys.argv[1:])"]
    status, said, result = measure("capture", prefix=prefix)  # the program raises its own limit again
    assert status == 1 and result is None and said.count("\n") == 1 and "File too large" in said and files() == set()


def ask(path: str, query: str) -> list[tuple]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute(query).fetchall()


def test_without_a_gpu_captures_are_those_of_pytorch(folder):
    result = measure("capture")[2]
    assert result.profiler == "torch" and result.nsys is None and not Path("bin/profiles").exists()
    assert files() == {"capture.json", "capture.sqlite"}


def test_under_nsys_a_capture_has_nothing_private_and_no_report(folder):
    with closing(sqlite3.connect("bin/report")) as database, database:
        database.execute("CREATE TABLE TARGET_INFO_SYSTEM_ENV (name TEXT, value TEXT)")
        database.execute("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES ('Hostname', 'gpu-node-17')")
    result = measure("capture", gpu=True)[2]
    assert result.profiler == "nsys" and result.nsys == result.key["nsys"] == "2099.1.1"
    assert ask("results/capture.sqlite", "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL")[0][0] > 0
    assert b"gpu-node-17" not in Path("results/capture.sqlite").read_bytes()
    assert not list(Path("results").glob("*.nsys-rep"))


def test_every_rank_has_an_nsys_of_its_own_and_what_an_earlier_result_left_goes(folder):
    Path("results").mkdir()
    for name in ("capture_rank2.sqlite", "capture.nsys-rep"):
        Path("results", name).write_text("old")
    assert measure("capture", backend="nsys", gpus=2, parallel="ddp")[2].status == "complete"
    reports = {f"reports/{name}_summary.csv" for name in ("kernel", "nvtx", "api")}
    captures = {"capture.sqlite", "capture_rank1.sqlite"}
    assert files() == {"capture.json", *captures, *reports}
    assert all(ask(f"results/{name}", "SELECT * FROM NVTX_EVENTS") for name in captures)
    result = measure("capture", program="runs out of memory", backend="nsys", gpus=2, parallel="ddp")[2]
    assert result.status == "out_of_memory" and result.profiler == "nsys"
    assert files() == {"capture.json", "capture.sqlite"} and Path("results/capture.sqlite").stat().st_size == 0


@pytest.mark.parametrize("manner", ["ends with 143", "leaves an agent"])
def test_a_capture_is_complete_if_nsys_leaves_a_report(folder, manner):
    Path("bin/manner").write_text(manner)
    assert measure("capture", backend="nsys")[2].status == "complete"


@pytest.mark.parametrize(
    ("manner", "words"),
    [
        ("writes nothing", "nsys wrote no report capture.nsys-rep, though the program ended well"),
        ("writes half", "`nsys export`"),
        ("exports half", "export it again"),
    ],
)
def test_an_nsys_that_leaves_nothing_usable_is_a_failure_in_one_line(folder, manner, words):
    Path("bin/manner").write_text(manner)
    status, said, result = measure("capture", backend="nsys")
    assert status == 1 and result is None and said.count("\n") == 1 and words in said and files() == set()


def test_nsys_records_from_before_the_device_is_there_unless_that_would_burden_it():
    plain, options = Spec(run="nano", stage="capture"), ["--gpu-metrics-devices=0"]
    assert choose_window(plain, True) == "recording@cs336_model" and choose_window(plain, False) is None
    burdens = [replace(plain, compile="on"), replace(plain, nsys_options=options)]
    assert {choose_window(spec, True) for spec in burdens} == {"cudaProfilerApi"}


def test_counters_are_those_of_ncu_without_what_names_the_host(folder):
    result = measure("counters", gpu=True, metrics=["sm__cycles_active.avg"])[2]
    assert result.status == "complete" and result.ncu == "2099.1.1"
    counted, printed = read_counters(Path("results/ncu.csv")), read_counters(CAPTURES / "ncu_2025.3.1.csv")
    assert counted["kernel"].equals(printed["kernel"]) and counted.notna().to_numpy().sum() > 100
    assert not {"Process ID", "Process Name", "Host Name"} & set(Path("results/ncu.csv").read_text().split('"'))
    assert "sm__cycles_active.avg" in Path("bin/commands").read_text()


@pytest.mark.parametrize(
    ("manner", "program", "words"),
    [
        ("lacks permission", "ends well", "NVreg_RestrictProfilingToAdminUsers=0"),
        ("cuts its table", "ends well", "no table that can be read"),
        ("works", "crashes", "the program crashed under ncu"),
    ],
)
def test_without_counters_a_result_says_why_in_words_that_may_be_published(folder, manner, program, words):
    Path("bin/manner").write_text(manner)
    status, _, result = measure("counters", program, gpu=True)
    assert status == 0 and result.status == "unsupported" and words in result.reason and "anna" not in result.reason
    assert Path("results/ncu.csv").stat().st_size == 0


def test_what_is_not_installed_is_named(folder):
    assert "without one" in measure("counters")[2].reason
    for program in ("ncu", "nsys"):
        Path("bin", program).unlink()
    assert "install Nsight Compute" in measure("counters", gpu=True)[2].reason
    status, said, _ = measure("capture", backend="nsys")
    assert status == 1 and said.count("\n") == 1 and "install Nsight Systems" in said and not Path("pids").exists()


def test_no_other_measurement_begins_between_a_program_and_its_export(folder):
    """The fake nsys looks at the host's lock while it exports; the fake program fails if it is held from outside."""
    text = Path("bin/nsys").read_text()
    look = "import fcntl; host = open(os.environ['KERNEL_TABLES_LOCKS'] + '/host', 'a')"
    look += "; fcntl.flock(host, fcntl.LOCK_EX | fcntl.LOCK_NB)"
    Path("bin/nsys").write_text(text.replace('elif verb == "export":\n', f'elif verb == "export":\n    {look}\n'))
    status, said, _ = measure("capture", backend="nsys")
    assert status == 1 and "temporarily unavailable" in said
