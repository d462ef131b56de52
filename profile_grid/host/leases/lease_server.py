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
from profile_grid.host.leases.gpu_leases import Lease, RequestWithdrawn, acquire_lease
from profile_grid.host.leases.host_locks import held_gpus

PEER_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid (SO_PEERCRED, unix(7))
NEIGHBOUR_POLL_MS = 1000  # between two counts of who else measures on this host


@dataclass
class Leases:
    """The leases of one job, and the total of seconds that its programs waited for them and held them."""

    address: Path | None = None  # of the socket on which programs ask for a lease; None if the job itself has one
    lock_descriptors: tuple[int, ...] = ()  # of the job's own lease: programs that inherit them keep it
    acquired_leases: list[Lease] = field(default_factory=list)
    held_s: float = 0.0
    max_neighbours: int = 0  # the most other GPUs of the host that were leased at the same time
    must_be_alone: bool = False  # later leases also wait for processes that returned a lease and are still on the GPUs
    _waited_s: float = 0.0
    _waiting_since_s: float | None = None  # by the monotonic clock; None while it does not wait

    def waited_s(self) -> float:
        """Seconds spent waiting, until now."""
        since = self._waiting_since_s
        return self._waited_s + (0.0 if since is None else time.monotonic() - since)

    @contextmanager
    def acquire(self, pool: Sequence[str], count: int, purpose: str, **options) -> Iterator[Lease]:
        """`acquire_lease` with the same arguments; its seconds are counted here."""
        self._waiting_since_s = time.monotonic()
        try:
            with acquire_lease(pool, count, purpose, **options) as lease:
                started_s = time.monotonic()
                self._waited_s, self._waiting_since_s = self.waited_s(), None
                self.acquired_leases.append(lease)
                try:
                    yield lease
                finally:
                    self.held_s += time.monotonic() - started_s
        finally:
            self._waited_s, self._waiting_since_s = self.waited_s(), None  # also if no lease was given

    def were_alone(self) -> bool:
        """Whether no process that had returned its lease was still on the GPUs at any lease of this job. All leases
        count: the caller asks because a program ran out of memory, and it is not known here which one."""
        return all(lease.is_alone for lease in self.acquired_leases)

    def count_neighbours(self, lease: Lease) -> None:
        """Counts the other GPUs of this host that are leased now; the maximum is kept."""
        self.max_neighbours = max(self.max_neighbours, len(held_gpus() - set(lease.gpus)))


@contextmanager
def leases_for(
    device: str,
    purpose: str,
    count: int = 1,
    *,
    quiet_host: bool = False,
    say: Callable[[str], None],
    on_lease: Callable[[Lease], None] = lambda lease: None,
) -> Iterator[Leases]:
    """The leases of one job, for a with block. Each of its programs consists of `count` processes, which together lease
    `count` visible GPUs, all or none. On a CPU, the job itself leases the host. With `quiet_host` no other GPU of the
    host is leased meanwhile. `on_lease` receives every lease before it is used; for GPUs, another thread calls it.
    Raises LeaseError if no lease is possible; for GPUs, only at the end of the block.
    """
    if device == "cpu" or not gpu_is_visible():
        leases = Leases()
        with leases.acquire([], 0, purpose, whole_host=True, say=say) as lease:
            leases.lock_descriptors = lease.lock_descriptors
            on_lease(lease)
            yield leases
        return
    lease_options = {"whole_host": quiet_host, "say": say}
    with _served_leases(visible_gpus(), count, purpose, lease_options, on_lease) as leases:
        yield leases


@contextmanager
def _served_leases(
    pool: Sequence[str], count: int, purpose: str, lease_options: dict[str, object], on_lease: Callable[[Lease], None]
) -> Iterator[Leases]:
    """`leases_for` on GPUs of the pool: the programs of the job ask for them over a socket. `lease_options` are
    keyword arguments of `acquire_lease`."""
    job_is_over = threading.Event()

    def lease_to(clients: Sequence[LeaseClient]) -> None:
        """Leases GPUs until each process has ended or returned them. A closed connection alone ends no lease: a process
        that is ending may still have memory on the GPU."""

        def is_wanted() -> bool:
            return not (job_is_over.is_set() or any(client.has_ended() for client in clients))

        options = lease_options | {"must_be_alone": leases.must_be_alone, "is_wanted": is_wanted}
        with suppress(RequestWithdrawn), leases.acquire(pool, count, purpose, **options) as lease:
            on_lease(lease)
            for client in clients:
                client.send(lease)
            leases.count_neighbours(lease)
            while not (job_is_over.is_set() or all(client.is_done(NEIGHBOUR_POLL_MS) for client in clients)):
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
            job_is_over.set()
            with suppress(OSError):  # _serve has closed it after an error
                listener.shutdown(socket.SHUT_RDWR)  # wakes accept(), which closing would not
            server.result()


def _serve(listener: socket.socket, count: int, lease_to: Callable[[Sequence["LeaseClient"]], None]) -> None:
    """Calls `lease_to` for each group of `count` processes that have asked, until the listener is shut down. If
    `lease_to` raises, the listener and all connections are closed, so that no process waits for an answer."""
    clients: list[LeaseClient] = []
    try:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return  # the listener was shut down
            for client in [client for client in clients if client.has_ended()]:  # before all had asked
                clients.remove(client)
                client.close()
            with suppress(ProcessLookupError):  # this one has ended, too
                clients.append(LeaseClient(connection))
            if len(clients) == count:
                lease_to(clients)
                while clients:
                    clients.pop().close()
    finally:
        listener.close()
        for client in clients:
            client.close()


class LeaseClient:
    """A process that asks for its GPUs over a connection. Raises ProcessLookupError if it has ended."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._may_return = True  # nothing has come over the connection yet, and it is open
        self._has_returned = False
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER_CREDENTIALS.size)
        try:
            self._process_descriptor = os.pidfd_open(PEER_CREDENTIALS.unpack(credentials)[0])
        except ProcessLookupError:
            connection.close()
            raise

    def send(self, lease: Lease) -> None:
        """Sends the process the names of its GPUs, and the open files of their locks, which then keep the lease."""
        with suppress(ConnectionError):  # it was killed meanwhile
            message = {"gpus": lease.gpus, "presence": len(lease.presence_descriptors)}
            descriptors = lease.lock_descriptors + lease.presence_descriptors
            socket.send_fds(self._connection, [json.dumps(message).encode()], descriptors)

    def has_ended(self, wait_ms: int = 0) -> bool:
        """Whether the process has ended, now or within some milliseconds."""
        return self._process_descriptor in _readable(wait_ms, self._process_descriptor)

    def is_done(self, wait_ms: int) -> bool:
        """Whether the process has ended, or has returned its lease, now or within some milliseconds."""
        if not self._may_return:
            return self._has_returned or self.has_ended(wait_ms)
        connection = self._connection.fileno()
        if connection in _readable(wait_ms, self._process_descriptor, connection):
            with suppress(ConnectionError):
                self._has_returned = self._connection.recv(len(GIVEN_BACK)) == GIVEN_BACK
            self._may_return = False  # it has returned its lease, or closed the connection
        return self._has_returned or self.has_ended()

    def close(self) -> None:
        """Ends the connection; a process without a lease then gives up."""
        self._connection.close()
        os.close(self._process_descriptor)


def _readable(wait_ms: int, *descriptors: int) -> set[int]:
    """The descriptors that can be read, now or within some milliseconds."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return {descriptor for descriptor, _ in poll.poll(wait_ms)}
