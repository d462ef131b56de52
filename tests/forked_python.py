"""`python -m MODULE` in a fork of a process that has imported what is heavy: a test of a command spends nine tenths of
its time on imports otherwise.

A fork is a process: it has its own descriptors, folder, environment and exit status, and imports the project itself.
Only what an interpreter reads where it starts (its options, PYTHON...) is that of the tests.
"""

import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
HEAVY = ("numpy", "pandas", "pyarrow.parquet", "adbc_driver_manager", "adbc_driver_sqlite", "jinja2")
MAX_BYTES, MAX_FILES = 1 << 17, 8  # of a request
FREE = 100  # descriptors from this number on are in nobody's way


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
    request = {"arguments": texts, "folder": str(cwd), "environment": dict(env or os.environ)}
    with ExitStack() as files:
        out, err = (files.enter_context(tempfile.TemporaryFile()) for _ in range(2))
        shown = out if stdout == subprocess.PIPE else stdout
        request["numbers"] = [0, 1, 2, *pass_fds]
        nothing = files.enter_context(Path(os.devnull).open("rb"))
        passed = [nothing.fileno(), shown.fileno(), err.fileno(), *pass_fds]
        status = _answer(request, passed, timeout)
        for file in (out, err):
            file.seek(0)
        return subprocess.CompletedProcess(texts, status, out.read() if shown is out else None, err.read())


def _answer(request: dict, passed: Sequence[int], timeout: float) -> int:
    """The exit status of a fork that does what is asked."""
    server, _ = _server()
    socket.send_fds(server, [json.dumps(request).encode()], passed)
    pid = int(server.recv(MAX_BYTES))
    server.settimeout(timeout)
    try:
        return int(server.recv(MAX_BYTES))
    except TimeoutError:
        os.kill(pid, signal.SIGKILL)
        server.settimeout(None)
        server.recv(MAX_BYTES)
        raise subprocess.TimeoutExpired(request["arguments"], timeout) from None
    finally:
        server.settimeout(None)


@cache
def _server() -> tuple[socket.socket, subprocess.Popen]:
    """The process that forks, and the connection to it; it ends when that is closed."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-m", "tests.forked_python", str(theirs.fileno())]
    with theirs:
        process = subprocess.Popen(command, cwd=ROOT, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
    return ours, process


def close() -> None:
    """Ends the process that forks, where there is one."""
    if _server.cache_info().currsize:
        connection, process = _server()
        connection.close()
        process.wait()
        _server.cache_clear()


def main() -> None:
    for name in HEAVY:
        __import__(name)
    client = socket.socket(fileno=int(sys.argv[1]))
    while True:
        content, files, _, _ = socket.recv_fds(client, MAX_BYTES, MAX_FILES)
        if not content:  # the tests have ended
            return
        pid = os.fork()
        if pid == 0:
            client.close()
            _run(json.loads(content), files)
        for file in files:
            os.close(file)
        client.send(str(pid).encode())
        _, ending = os.waitpid(pid, 0)
        client.send(str(os.waitstatus_to_exitcode(ending)).encode())


def _run(request: dict, files: Sequence[int]) -> None:
    """Never returns: the fork ends here, as Python ends."""
    status = 1
    try:
        _take_places(files, request["numbers"])
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["environment"])
        module, *arguments = request["arguments"]
        sys.path[0], sys.argv[1:] = request["folder"], arguments
        del sys.modules["tests"]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as ending:
        status = _status(ending.code)
    except BaseException:
        traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def _take_places(files: Sequence[int], numbers: Sequence[int]) -> None:
    """Gives the files these numbers, some of which other files of this process may have."""
    for place, file in enumerate(files):
        os.dup2(file, FREE + place)
        os.close(file)
    for place, number in enumerate(numbers):
        os.dup2(FREE + place, number)
        os.close(FREE + place)


def _status(code: object) -> int:
    if isinstance(code, int) or code is None:
        return code or 0
    print(code, file=sys.stderr)
    return 1


if __name__ == "__main__":
    main()
