"""Leases for the programs of one job. A program asks for its GPUs after it has imported everything, and has them until
it returns them at the end of its window, or ends (cs336_model/program/lease.py).

Interpreters start, profilers finish, exports and tables are made while other measurements run; opening a context,
warming up and measuring happen alone. On the CPU imports would disturb, so there a lease spans the job.
"""

import json
import os
import select
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from cs336_model.program.lease import GIVEN_BACK
from kernel_recorder.nsys_profile import gpu_is_visible
from profile_grid.host.gpu_check import visible_gpus
from profile_grid.host.leases.gpu_leases import Lease, NotWanted, acquire_lease
from profile_grid.host.leases.host_locks import held_gpus

PEER = struct.Struct("3i")  # pid, uid, gid (SO_PEERCRED, unix(7))
LOOK_MS = 1000  # between two checks of who else measures on this host


@dataclass
class Leases:
    """The leases of one job, and the seconds that its programs waited for them and held them."""

    address: Path | None = None  # where programs ask for a lease; None if the job itself has one
    files: tuple[int, ...] = ()  # of the job's lease: a process that has them open keeps it
    given: list[Lease] = field(default_factory=list)
    held_s: float = 0.0
    neighbours: int = 0  # the most other GPUs of the host that were leased at the same time
    alone: bool = False  # also wait for processes that returned an earlier lease of the GPUs
    _waited_s: float = 0.0
    _waits_since: float | None = None

    def waited_s(self) -> float:
        """Seconds spent waiting, until now."""
        since = self._waits_since
        return self._waited_s + (0.0 if since is None else time.monotonic() - since)

    @contextmanager
    def acquire(self, pool: Sequence[str], count: int, purpose: str, **options) -> Iterator[Lease]:
        """`acquire_lease` with the same arguments; its seconds are counted here."""
        self._waits_since = time.monotonic()
        try:
            with acquire_lease(pool, count, purpose, **options) as lease:
                started, self._waited_s, self._waits_since = time.monotonic(), self.waited_s(), None
                self.given.append(lease)
                try:
                    yield lease
                finally:
                    self.held_s += time.monotonic() - started
        finally:
            self._waited_s, self._waits_since = self.waited_s(), None

    def were_alone(self) -> bool:
        """Whether nobody who returned an earlier lease was on the GPUs whenever this job got them. It covers all leases
        of the job: several of its programs may wait at once, and which of them ran out of memory is unknown here."""
        return all(lease.alone for lease in self.given)

    def count_neighbours(self, lease: Lease) -> None:
        """Counts who else measures on this host at this moment."""
        self.neighbours = max(self.neighbours, len(held_gpus() - set(lease.gpus)))


@contextmanager
def leases_for(
    device: str,
    purpose: str,
    count: int = 1,
    *,
    quiet_host: bool = False,
    say: Callable[[str], None],
    began: Callable[[Lease], None] = lambda lease: None,
) -> Iterator[Leases]:
    """The leases of one job, for a with block: for each of its programs, of `count` visible GPUs, all or none, or of
    the host if it has no GPU. A program has one process per GPU, which ask together. With `quiet_host` no other GPU of
    the host is leased meanwhile. `began` receives every lease before it is used, in another thread. Raises LeaseError
    at the end if no lease is possible.
    """
    if device == "cpu" or not gpu_is_visible():
        leases = Leases()
        with leases.acquire([], 0, purpose, whole_host=True, say=say) as lease:
            leases.files = lease.files
            began(lease)
            yield leases
        return
    options = {"whole_host": quiet_host, "say": say}
    with _served_leases(visible_gpus(), count, purpose, options, began) as leases:
        yield leases


@contextmanager
def _served_leases(
    pool: Sequence[str], count: int, purpose: str, options: dict[str, object], began: Callable[[Lease], None]
) -> Iterator[Leases]:
    """The leases of GPUs for the programs of one job, which ask for them over a socket."""
    is_closed = threading.Event()

    def lease_to(askers: Sequence[Asker]) -> None:
        """Leases GPUs until each process is gone or has returned them. The end of a connection does not count: the
        driver may take longer to free what a process had on the GPU."""

        def wanted() -> bool:
            return not (is_closed.is_set() or any(asker.is_gone() for asker in askers))

        waiting = options | {"alone": leases.alone, "wanted": wanted}
        with suppress(NotWanted), leases.acquire(pool, count, purpose, **waiting) as lease:
            began(lease)
            for asker in askers:
                asker.send(lease)
            leases.count_neighbours(lease)
            while not (is_closed.is_set() or all(asker.is_done(LOOK_MS) for asker in askers)):
                leases.count_neighbours(lease)

    with (
        tempfile.TemporaryDirectory(prefix="lease-", dir="/tmp" if os.access("/tmp", os.W_OK) else None) as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener,
        ThreadPoolExecutor(1) as thread,
    ):
        leases = Leases(Path(folder, "socket"))
        listener.bind(str(leases.address))
        listener.listen()
        server = thread.submit(_serve, listener, count, lease_to)
        try:
            yield leases
        finally:
            is_closed.set()
            with suppress(OSError):  # accept() has failed already
                listener.shutdown(socket.SHUT_RDWR)  # wakes accept(), which closing would not
            server.result()


def _serve(listener: socket.socket, count: int, lease_to: Callable[[Sequence["Asker"]], None]) -> None:
    """Leases to every `count` processes that ask, until the listener is shut down. If no lease is possible, the
    listener is closed: whoever asks or has asked does not wait for an answer then."""
    askers: list[Asker] = []
    try:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return  # it was shut down
            for asker in [asker for asker in askers if asker.is_gone()]:  # its program has failed
                askers.remove(asker)
                asker.close()
            with suppress(ProcessLookupError):
                askers.append(Asker(connection))
            if len(askers) == count:
                lease_to(askers)
                while askers:
                    askers.pop().close()
    finally:
        listener.close()
        for asker in askers:
            asker.close()


class Asker:
    """A process that asks for its GPUs over a connection. Raises ProcessLookupError if it is gone."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._is_listening, self._has_returned = connection, True, False
        pid, _, _ = PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size))
        try:
            self._process = os.pidfd_open(pid)
        except ProcessLookupError:
            connection.close()
            raise

    def send(self, lease: Lease) -> None:
        """Sends it the names of its GPUs, and the files whose locks lease them."""
        with suppress(ConnectionError):  # it was killed meanwhile
            message = {"gpus": lease.gpus, "presence": len(lease.presence_files)}
            socket.send_fds(self._connection, [json.dumps(message).encode()], lease.files + lease.presence_files)

    def is_gone(self, patience_ms: int = 0) -> bool:
        """Whether the process has ended, or ends within some milliseconds."""
        return self._process in _readable(patience_ms, self._process)

    def is_done(self, patience_ms: int) -> bool:
        """Whether the process has ended, or returns its lease, within some milliseconds."""
        if self._is_listening and self._connection.fileno() in _readable(
            patience_ms, self._process, self._connection.fileno()
        ):
            with suppress(ConnectionError):
                self._has_returned = self._connection.recv(len(GIVEN_BACK)) == GIVEN_BACK
            self._is_listening = False
        return self._has_returned or self.is_gone(0 if self._is_listening else patience_ms)

    def close(self) -> None:
        """Ends the connection; a process without a lease then gives up."""
        self._connection.close()
        os.close(self._process)


def _readable(patience_ms: int, *files: int) -> set[int]:
    """The files that can be read, now or within some milliseconds."""
    poll = select.poll()
    for file in files:
        poll.register(file, select.POLLIN)
    return {file for file, _ in poll.poll(patience_ms)}
