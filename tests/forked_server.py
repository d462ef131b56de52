"""Forks for tests/forked_python.py: `python -P forked_server.py SOCKET MODULES...` imports the modules once somebody
connects, and serves whoever does, until its input ends."""

import atexit
import gc
import json
import os
import runpy
import select
import selectors
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Sequence
from contextlib import suppress

MAX_BYTES, MAX_FILES = 1 << 17, 8  # of a request
FREE = 100  # descriptors from this number on are in nobody's way


class Server:
    """Forks for whoever connects, one after the other, and says to each how its fork ended."""

    def __init__(self, listener: socket.socket) -> None:
        self.listener = listener
        self.asking: dict[int, socket.socket] = {}  # by the process that is theirs
        ended, self.ends = socket.socketpair()
        self.ends.setblocking(False)
        signal.set_wakeup_fd(self.ends.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.selector = selectors.DefaultSelector()
        for source, answer in ((sys.stdin, sys.exit), (listener, self.fork), (ended, lambda: self.reap(ended))):
            self.selector.register(source, selectors.EVENT_READ, answer)

    def serve(self) -> None:
        while True:
            for key, _ in self.selector.select():
                key.data()

    def fork(self) -> None:
        connection, _ = self.listener.accept()
        content, files, _, _ = socket.recv_fds(connection, MAX_BYTES, MAX_FILES)
        if not content:  # it was killed meanwhile
            return
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            run(json.loads(content), files)
        for file in files:
            os.close(file)
        self.asking[pid] = connection
        self.selector.register(connection, selectors.EVENT_READ, lambda: self.forget(pid))

    def forget(self, pid: int) -> None:
        """Kills the fork of somebody who is gone."""
        self.selector.unregister(self.asking[pid])
        os.kill(pid, signal.SIGKILL)

    def reap(self, ended: socket.socket) -> None:
        ended.recv(MAX_BYTES)
        with suppress(ChildProcessError):
            while (reaped := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = reaped
                connection = self.asking.pop(pid)
                with suppress(KeyError):  # it is gone
                    self.selector.unregister(connection)
                with connection, suppress(BrokenPipeError):
                    connection.send(str(os.waitstatus_to_exitcode(status)).encode())


def run(request: dict, files: Sequence[int]) -> None:
    """Never returns: the fork ends here, as Python ends."""
    status = 1
    try:
        take_places(files, request["numbers"])
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["environment"])
        name, *sys.argv[1:] = request["arguments"]
        sys.executable = request.get("python", sys.executable)
        paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        first = [] if os.environ.get("PYTHONSAFEPATH") else [request["first"]]
        sys.path[:0] = [*first, *(os.path.abspath(path) for path in paths if path)]
        if name.endswith(".py"):
            sys.argv[0] = name
            runpy.run_path(name, run_name="__main__")
        else:
            runpy.run_module(name, run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as ending:
        status = status_of(ending.code)
    except BaseException:
        traceback.print_exc()
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def take_places(files: Sequence[int], numbers: Sequence[int]) -> None:
    """Gives the files these numbers, some of which other files of this process may have."""
    for place, file in enumerate(files):
        os.dup2(file, FREE + place)
        os.close(file)
    for place, number in enumerate(numbers):
        os.dup2(FREE + place, number)
        os.close(FREE + place)


def status_of(code: object) -> int:
    if isinstance(code, int) or code is None:
        return code or 0
    print(code, file=sys.stderr)
    return 1


def main(number: str, *modules: str) -> None:
    listener = socket.socket(fileno=int(number))
    asked, _, _ = select.select([listener, sys.stdin], [], [])
    if listener not in asked:  # nobody will
        return
    for name in modules:
        __import__(name)
    gc.collect()
    gc.freeze()  # a fork that searches it for garbage also copies it
    Server(listener).serve()


if __name__ == "__main__":
    main(*sys.argv[1:])
