"""Leases for the programs of one job: each asks for its GPUs once it has imported everything, and has them until it
gives them back at the end of its window, or ends (cs336_model/program/lease.py).

Interpreters start, profilers finish, exports and tables are made while other measurements run; opening a context,
warming up and measuring happen alone. On the processor imports would disturb, so there a lease spans the job.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from cs336_model.program.lease import GIVEN_BACK
from kernel_recorder.gpu import gpu_is_visible
from profile_grid.host.gpu_check import visible_gpus
from profile_grid.host.leases.gpu_leases import Lease, NotWanted, acquire_lease
from profile_grid.host.leases.host_locks import held_gpus

PEER = struct.Struct("3i")  # pid, uid, gid (SO_PEERCRED, unix(7))
LOOK_MS = 1000  # between two looks at who else measures on this host


@dataclass
class Leases:
    """The leases of one job, and the seconds that its programs waited for them and held them."""

    address: Path | None = None  # where programs ask for a lease; None if the job itself has one
    files: tuple[int, ...] = ()  # of the job's lease: a process that has them open keeps it
    given: list[Lease] = field(default_factory=list)
    held_s: float = 0.0
    neighbours: int = 0  # the most other GPUs of the host that were leased at the same time
    alone: bool = False  # also wait for processes that gave back an earlier lease of the GPUs
    _waited_s: float = 0.0
    _waits_since: float | None = None

    def waited_s(self) -> float:
        """Seconds spent waiting, until now."""
        since = self._waits_since
        return self._waited_s + (0.0 if since is None else time.monotonic() - since)

    @contextmanager
    def acquire(self, pool: Sequence[str], count: int, what: str, **options) -> Iterator[Lease]:
        """`acquire_lease` of the same arguments, whose seconds are counted here."""
        self._waits_since = time.monotonic()
        try:
            with acquire_lease(pool, count, what, **options) as lease:
                started, self._waited_s, self._waits_since = time.monotonic(), self.waited_s(), None
                self.given.append(lease)
                try:
                    yield lease
                finally:
                    self.held_s += time.monotonic() - started
        finally:
            self._waited_s, self._waits_since = self.waited_s(), None

    def were_alone(self) -> bool:
        """Whether nobody who gave an earlier lease back was on the GPUs whenever this job got them: several of its
        programs may wait for them at once, and which of them ran out of memory is not told here."""
        return all(lease.alone for lease in self.given)

    def look_round(self, lease: Lease) -> None:
        """Counts who else measures on this host at this moment."""
        self.neighbours = max(self.neighbours, len(held_gpus() - set(lease.gpus)))


@contextmanager
def leases_for(
    device: str,
    what: str,
    count: int = 1,
    *,
    quiet_host: bool = False,
    say: Callable[[str], None],
    began: Callable[[Lease], None] = lambda lease: None,
) -> Iterator[Leases]:
    """The leases of one job, for the time of a with block: of `count` of the visible GPUs for each of its programs, all
    or none, or of the host where there is none; a program has so many processes. With `quiet_host` no other GPU of the
    host is leased meanwhile. `began` is told every lease before it is used, from another thread."""
    if device == "cpu" or not gpu_is_visible():
        leases = Leases()
        with leases.acquire([], 0, what, whole_host=True, say=say) as lease:
            leases.files = lease.files
            began(lease)
            yield leases
        return
    with tempfile.TemporaryDirectory(prefix="lease-", dir="/tmp" if os.access("/tmp", os.W_OK) else None) as folder:
        server = LeaseServer(Path(folder, "socket"), visible_gpus(), what, began, count, whole_host=quiet_host, say=say)
        try:
            yield server.leases
        finally:
            server.close()


class LeaseServer:
    """Listens at an address and leases GPUs of a pool to the programs that ask, one after another, until it is closed.
    A program asks by as many processes as it is to have GPUs; each is told all of them, and they are leased together.

    `close` raises what went wrong meanwhile: LeaseError where no lease can be had."""

    def __init__(
        self, address: Path, pool: Sequence[str], what: str, began: Callable[[Lease], None], count: int, **options
    ):
        """`options` are those of `acquire_lease`."""
        self.leases = Leases(address)
        self._count, self._asking = count, []
        self._pool, self._what, self._began, self._options = pool, what, began, options
        self._error: Exception | None = None
        self._closed = threading.Event()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.bind(str(address))
        self._socket.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Leases nothing any more, and takes back what is still leased."""
        self._closed.set()
        with suppress(OSError):  # accept() has failed already
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes accept(), which closing would not
        self._thread.join()
        self._socket.close()
        if self._error is not None:
            raise self._error

    def _serve(self) -> None:
        while not self._closed.is_set():
            try:
                program, _ = self._socket.accept()
            except OSError:
                return  # it was shut down
            try:
                self._ask(program)
            except Exception as error:
                self._error = error  # raised by close(), in the thread that waits for the program
                return
        self._forget(self._asking)

    def _ask(self, connection: socket.socket) -> None:
        """Notes a process that asks; leases to it and its peers when they are all there. One that is gone meanwhile was
        of a program that has failed."""
        self._forget([process for process in self._asking if process.is_gone(0)])
        with suppress(ProcessLookupError):
            self._asking.append(Asking(connection))
        if len(self._asking) == self._count:
            try:
                self._lease_to(self._asking)
            finally:
                self._forget(self._asking)

    def _lease_to(self, processes: Sequence[Asking]) -> None:
        """Leases GPUs to the processes at the other ends until each is gone or has given them back: not until its end
        of a connection is, since the driver may take longer to free what a process had on the GPU."""

        def wanted() -> bool:
            return not (self._closed.is_set() or any(process.is_gone(0) for process in processes))

        asked = {**self._options, "alone": self.leases.alone, "wanted": wanted}
        with suppress(NotWanted), self.leases.acquire(self._pool, self._count, self._what, **asked) as lease:
            self._began(lease)
            for process in processes:
                process.tell(lease)
            self.leases.look_round(lease)
            while not (self._closed.is_set() or all(process.has_left(LOOK_MS) for process in processes)):
                self.leases.look_round(lease)

    def _forget(self, processes: Sequence[Asking]) -> None:
        for process in list(processes):
            process.close()
            self._asking.remove(process)


class Asking:
    """A process that asks for its GPUs at the other end of a connection. Raises ProcessLookupError where it is gone."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._listens, self._gave_back = True, False
        pid, _, _ = PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size))
        try:
            self._process = os.pidfd_open(pid)
        except ProcessLookupError:
            connection.close()
            raise

    def tell(self, lease: Lease) -> None:
        """Tells it its GPUs, and gives it the files whose locks lease them."""
        with suppress(ConnectionError):  # it was ended meanwhile
            message = {"gpus": lease.gpus, "staying": len(lease.staying)}
            socket.send_fds(self._connection, [json.dumps(message).encode()], lease.files + lease.staying)

    def is_gone(self, patience_ms: int) -> bool:
        """Whether the process has ended, or does so within some milliseconds."""
        return self._process in _ready(patience_ms, self._process)

    def has_left(self, patience_ms: int) -> bool:
        """Whether the process has ended, or gives its lease back, within some milliseconds. A connection that closes
        says nothing: the driver may still be freeing what the process had there."""
        if self._gave_back or not self._listens:
            return self._gave_back or self.is_gone(patience_ms)
        ready = _ready(patience_ms, self._process, self._connection.fileno())
        if ready == {self._connection.fileno()}:
            with suppress(ConnectionError):
                self._gave_back = self._connection.recv(len(GIVEN_BACK)) == GIVEN_BACK
            self._listens = False
        return self._gave_back or self._process in ready

    def close(self) -> None:
        """Ends the connection; a process that was told nothing gives up."""
        self._connection.close()
        os.close(self._process)


def _ready(patience_ms: int, *files: int) -> set[int]:
    """Those of the files that can be read, now or within some milliseconds."""
    poll = select.poll()
    for file in files:
        poll.register(file, select.POLLIN)
    return {file for file, _ in poll.poll(patience_ms)}
