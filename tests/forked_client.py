"""The interpreter that forks stand for (tests/forked_python.py): asks for a fork, and ends as it does.

    python -IS forked_client.py PYTHON ANALYSIS TORCH COMPILER NAME ARGUMENTS...

PYTHON runs what is neither a script nor a module of the project; the next three name sockets; NAME is the path by which
this was called.
"""

import json
import os
import signal
import socket
import sys

MAX_BYTES = 1 << 17  # of a request
MODULES = (("workflow.make", "workflow.scripts", "kernel_tables"), ("cs336_model.program",), ("tests.cs336_model.",))


def ask(server: str, request: dict, places: dict[int, int]) -> socket.socket:
    """The connection to a server on which the status of a fork will arrive; `places` are its descriptors, by their
    number in the fork."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(f"\0{server}")
    content = json.dumps(request | {"numbers": list(places)}).encode()
    socket.send_fds(connection, [content], list(places.values()))
    return connection


def main(python: str, analysis: str, torch: str, compiler: str, name: str, *arguments: str) -> None:
    """Never returns."""
    folder, server = os.getcwd(), None
    request = {"folder": folder, "environment": dict(os.environ), "python": name}
    if arguments[:1] == ("-m",):
        of_module = zip(MODULES, (analysis, torch, compiler), strict=True)
        server = next((server for beginnings, server in of_module if arguments[1].startswith(beginnings)), None)
        request |= {"arguments": arguments[1:], "first": folder}
    elif arguments[:1] and arguments[0].endswith(".py"):
        server = torch
        request |= {"arguments": arguments, "first": os.path.dirname(os.path.abspath(arguments[0]))}
    if server is None:
        os.execv(python, [python, *arguments])
    with ask(server, request, {number: number for number in range(3)}) as connection:
        status = int(connection.recv(100) or -signal.SIGKILL)
    if status < 0:
        signal.signal(-status, signal.SIG_DFL) if -status not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), -status)
    os._exit(status)


if __name__ == "__main__":
    main(*sys.argv[1:])
