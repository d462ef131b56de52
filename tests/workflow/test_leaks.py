"""A canary in the environment, in a path and in another process's command line is in nothing that people publish."""

import gzip
import io
import re
import sqlite3
import subprocess
from contextlib import closing
from importlib.metadata import version
from pathlib import Path

import pyarrow.parquet
import pytest

from cs336_model.arguments import PROJECT_ARGUMENTS
from kernel_tables.reading import nsys
from profile_grid.host.leases.lease_server import Leases
from profile_grid.host.processes.job import Job
from profile_grid.stages.capture.nsys_capture import nsys_attempt
from profile_grid.stages.capture.nsys_sandbox import namespace_command
from tests.default_values import DEFAULT_VALUES
from tests.workflow.conftest import CANARY

SEEN_AS = (CANARY.encode(), CANARY.encode("utf-16-le"), CANARY.encode("utf-16-be"), CANARY.encode().hex().encode())
SQLITE, GZIP, PARQUET = b"SQLite format 3\0", b"\x1f\x8b", b"PAR1"
WRITTEN_BY_THE_EXPORT = re.compile("^(META_DATA_EXPORT|EXPORT_META_DATA)$")  # of this test, not part of the report


def cells(path, but=None):
    """Every value of a SQLite file as bytes: text with NUL bytes inside, and blobs, whole."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        database.text_factory = bytes
        for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            if not (but and but.match(table.decode())):
                for row in database.execute(f'SELECT * FROM "{table.decode()}"'):
                    yield b"\n".join(value if isinstance(value, bytes) else str(value).encode() for value in row)


def contents(path):
    """A file as it is, and what is packed in it."""
    raw = path.read_bytes()
    yield raw
    if raw.startswith(SQLITE):
        yield from cells(path)
    elif raw.startswith(GZIP):
        yield gzip.decompress(raw)
    elif raw.startswith(PARQUET):
        table = pyarrow.parquet.read_table(path)
        yield repr(table.schema.metadata).encode()
        yield table.to_pandas().to_csv().encode()


def leaks(parts):
    return any(form in part for part in parts for form in SEEN_AS)


def test_the_search_finds_a_canary_wherever_it_hides(tmp_path):
    with closing(sqlite3.connect(tmp_path / "a.sqlite")) as database, database:
        database.execute("CREATE TABLE StringIds (value TEXT)")
        database.execute("INSERT INTO StringIds VALUES (CAST(? AS TEXT))", (b"PATH=/bin\0TOKEN=" + CANARY.encode(),))
    (tmp_path / "b.gz").write_bytes(gzip.compress(CANARY.encode()))
    frame = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"x": [CANARY] * 9}), frame, compression="zstd")
    (tmp_path / "c.parquet").write_bytes(frame.getvalue())
    (tmp_path / "d.txt").write_text(CANARY, encoding="utf-16")
    assert all(leaks(contents(path)) for path in tmp_path.iterdir())


def test_nothing_below_results_holds_the_canary(finished_project):
    files = [path for path in (finished_project / "results").rglob("*") if path.is_file()]
    assert len(files) > 40
    assert [path for path in files if leaks([str(path.relative_to(finished_project)).encode()])] == []
    assert [path for path in files if leaks(contents(path))] == []


PROGRAM = {
    "run": "one_ctx8_forward",
    "constructor": "cs336_model.model:TransformerLM",
    "config": None,
    "arguments": PROJECT_ARGUMENTS,
    "sizes": {"d_model": 16, "num_layers": 1, "num_heads": 2, "d_ff": 32, "rope_theta": 10000.0},
    "annotate": {},
    "replace": {},
    "dimensions": {"model": "one", "context_length": 8, "mode": "forward", "batch_size": 1, **DEFAULT_VALUES},
    "vocab_size": 50,
    "warmup_steps": 0,
    "measured_steps": 1,
    "seed": 0,
    "device": "cpu",
}


def nsys_agents():
    """The processes of nsys's agents: they have a session of their own and no parent left."""
    lines = {path.parent.name: path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline")}
    return {pid for pid, line in lines.items() if b"nsys" in line and b"--start-agent" in line}


@pytest.fixture(scope="module")
def nsys_report(finished_project, tmp_path_factory):
    """A capture by the real nsys, of a project in a folder with the canary's name; the attempt, its folder, and the
    agents of nsys that are left."""
    if nsys.find() is None:
        pytest.skip("there is no nsys on PATH")
    trial, agents = tmp_path_factory.mktemp(f"trial-{CANARY}"), nsys_agents()
    specification = {"program": PROGRAM, "backend": "nsys", "environment": [], "nsys_options": []}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(finished_project)
        patch.setenv("PYTHONPATH", str(finished_project))
        patch.setenv("SECRET_TOKEN", CANARY)
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp(f"tmp-{CANARY}")))
        with subprocess.Popen(["sh", "-c", "read line", CANARY], stdin=subprocess.PIPE) as other:
            attempt = nsys_attempt(Job(specification, trial, trial, trial / "capture.log", 120.0, Leases()), trial, 1)
            other.communicate(b"\n")
    return attempt, trial, nsys_agents() - agents


def test_nsys_on_the_cpu_is_whole_or_says_that_this_nvtx_is_unseen(nsys_report):
    attempt, _, _ = nsys_report
    unseen = nsys.version_numbers() < (2024, 3) and tuple(map(int, version("nvtx").split("."))) >= (0, 2, 12)
    if unseen:
        assert "no NVTX range was recorded" in str(attempt.problem)
        assert "nvtx 0.2.12 or newer records nothing under nsys 2024.2 or older" in str(attempt.problem)
    else:
        assert attempt.problem is None


def test_the_published_capture_of_nsys_does_not_hold_the_canary(nsys_report):
    _, trial, _ = nsys_report
    assert not leaks(contents(trial / "capture.sqlite"))


def test_nsyss_own_report_does_not_hold_the_canary_even_where_it_is_packed(nsys_report, tmp_path):
    if not namespace_command():
        pytest.skip("this system permits no process namespace, so nsys reads the environment of other processes")
    _, trial, _ = nsys_report
    assert not leaks(contents(trial / "capture.nsys-rep"))
    nsys.export_report(trial / "capture.nsys-rep", tmp_path / "whole.sqlite")
    assert not leaks(cells(tmp_path / "whole.sqlite", but=WRITTEN_BY_THE_EXPORT))


def test_no_agent_of_nsys_is_left_running(nsys_report):
    _, _, agents = nsys_report
    assert agents == set()
