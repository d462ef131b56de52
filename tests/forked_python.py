"""`python -m MODULE` in a fork of a process that has imported what is heavy: the jobs of a workflow and the commands
spend most of their time on imports otherwise.

`run_module` runs one from a test; `python()` is an interpreter for programs that start others. A fork is a process: it
has its own descriptors, folder, environment and exit status, and imports the project itself. Only what an interpreter
reads where it starts (its options, PYTHON...) is that of the tests, and it ends with whoever asked for it, not as a
process below that one.
"""

import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path

from tests.forked_client import MAX_BYTES, ask

ROOT = Path(__file__).parents[1]
HEAVY = {  # what is imported for the modules of these names
    "analysis": ("numpy", "pandas", "pyarrow.parquet", "adbc_driver_manager", "adbc_driver_sqlite", "jinja2", "altair"),
    "torch": ("torch",),
    "compiler": ("torch", "torch._dynamo", "torch._inductor.compile_fx"),
}
SERVER, CLIENT = (Path(__file__).with_name(f"forked_{name}.py") for name in ("server", "client"))


def run_module(
    *arguments: str | bytes | Path,
    cwd: Path = ROOT,
    env: Mapping[str, str] | None = None,
    stdout=subprocess.PIPE,
    pass_fds: Sequence[int] = (),
    timeout: float = 120.0,
) -> subprocess.CompletedProcess:
    """As `subprocess.run([sys.executable, "-m", *arguments], stderr=subprocess.PIPE, ...)`, with bytes. Captured output
    goes to a file meanwhile. Raises TimeoutExpired."""
    texts = [os.fsdecode(argument) for argument in arguments]
    with ExitStack() as files:
        out, err = (files.enter_context(tempfile.TemporaryFile()) for _ in range(2))
        shown = out if stdout == subprocess.PIPE else stdout
        nothing = files.enter_context(Path(os.devnull).open("rb"))
        places = {0: nothing.fileno(), 1: shown.fileno(), 2: err.fileno()} | {number: number for number in pass_fds}
        folder = str(cwd)
        request = {"arguments": texts, "folder": folder, "first": folder, "environment": dict(env or os.environ)}
        server = files.enter_context(ask(_server("analysis"), request, places))
        server.settimeout(timeout)
        try:
            status = int(server.recv(MAX_BYTES))
        except TimeoutError:
            raise subprocess.TimeoutExpired(texts, timeout) from None
        for file in (out, err):
            file.seek(0)
        return subprocess.CompletedProcess(texts, status, out.read() if shown is out else None, err.read())


@cache
def python() -> str:
    """The path of an interpreter that runs modules of the project in forks, and all else as the one of the tests."""
    path = Path(_folder(), "python")
    client = [sys.executable, "-IS", str(CLIENT), sys.executable]
    path.write_text(f'#!/bin/sh\nexec {shlex.join([*client, *map(_server, HEAVY)])} "$0" "$@"\n')
    path.chmod(0o755)
    return str(path)


@cache
def _folder() -> str:
    return tempfile.mkdtemp(prefix="forked-")


@cache
def _process(kind: str) -> tuple[str, subprocess.Popen]:
    """The name of the socket at which a process waits that forks, and the process; it ends when its input does."""
    name = f"{ROOT}-{os.getpid()}-{kind}"[-100:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(f"\0{name}")
        listener.listen(64)
        command = [sys.executable, "-P", str(SERVER), str(listener.fileno()), *HEAVY[kind]]
        plain = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        plain["OMP_NUM_THREADS"] = "1"  # PyTorch reads it once, where it is imported, so that all forks have it
        process = subprocess.Popen(
            command, env=plain, pass_fds=[listener.fileno()], stdin=subprocess.PIPE, start_new_session=True
        )
    return name, process


def _server(kind: str) -> str:
    return _process(kind)[0]


def close() -> None:
    """Ends the processes that fork."""
    for kind in HEAVY if _process.cache_info().currsize else ():
        _, process = _process(kind)
        process.stdin.close()
        process.wait()
    if _folder.cache_info().currsize:
        shutil.rmtree(_folder())
    for kept in (_process, python, _folder):
        kept.cache_clear()
