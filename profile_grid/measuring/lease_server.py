"""Leases for the programs of one job: each asks for its GPUs when it has imported everything, and has them until it
gives them back, at the end of its window, or its process is gone (cs336_model/program/lease.py).

Interpreters start, profilers finish, exports and tables are made while other measurements run; opening a context,
warming up and measuring happen alone. On the processor importing would disturb, so there the lease spans all of a job.
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
from kernel_tables.recording.gpu import gpu_is_visible
from profile_grid.measuring.gpu_check import visible_gpus
from profile_grid.measuring.host_locks import held_gpus
from profile_grid.measuring.leases import Lease, NotWanted, leased

PEER = struct.Struct("3i")  # pid, uid, gid (SO_PEERCRED, unix(7))
LOOK_MS = 1000  # between two looks at who else measures on this host


@dataclass
class Leases:
    """What a job was leased: seconds that its programs waited and had their GPUs, the most other GPUs of the host that
    were leased meanwhile. `address` is where programs ask for their lease, None where the job has one for all."""

    address: Path | None = None
    files: tuple[int, ...] = ()  # of the job's own lease: who has them open keeps it
    given: list[Lease] = field(default_factory=list)
    held_s: float = 0.0
    neighbours: int = 0
    alone: bool = False  # whether nobody who gave an earlier lease back may still be on the GPUs
    _waited_s: float = 0.0
    _waits_since: float | None = None

    def waited_s(self) -> float:
        """Seconds spent waiting, until now."""
        since = self._waits_since
        return self._waited_s + (0.0 if since is None else time.monotonic() - since)

    @contextmanager
    def counted(self, pool: Sequence[str], count: int, what: str, **options) -> Iterator[Lease]:
        """`leased` of the same arguments, whose seconds are counted here."""
        self._waits_since = time.monotonic()
        try:
            with leased(pool, count, what, **options) as lease:
                started, self._waited_s, self._waits_since = time.monotonic(), self.waited_s(), None
                self.given.append(lease)
                try:
                    yield lease
                finally:
                    self.held_s += time.monotonic() - started
        finally:
            self._waits_since = None

    def were_alone(self) -> bool:
        """Whether nobody who gave an earlier lease back was on the GPUs when this job got them last."""
        return not self.given or self.given[-1].alone

    def look_round(self, lease: Lease) -> None:
        """Counts who else measures on this host at this moment."""
        self.neighbours = max(self.neighbours, len(held_gpus() - set(lease.gpus)))


@contextmanager
def leases_for(
    device: str,
    what: str,
    *,
    quiet_host: bool = False,
    say: Callable[[str], None],
    began: Callable[[Lease], None] = lambda lease: None,
) -> Iterator[Leases]:
    """The leases of one job, for the time of a with block: of one of the visible GPUs for each of its programs, or of
    the host where there is none. With `quiet_host` no other GPU of the host is leased meanwhile. `began` is told every
    lease before it is used, from another thread."""
    if device == "cpu" or not gpu_is_visible():
        leases = Leases()
        with leases.counted([], 0, what, whole_host=True, say=say) as lease:
            leases.files = lease.files
            began(lease)
            yield leases
        return
    with tempfile.TemporaryDirectory(prefix="lease-", dir="/tmp" if os.access("/tmp", os.W_OK) else None) as folder:
        server = LeaseServer(Path(folder, "socket"), visible_gpus(), what, began, whole_host=quiet_host, say=say)
        try:
            yield server.leases
        finally:
            server.close()


class LeaseServer:
    """Listens at an address and leases GPUs of a pool to the programs that ask, one after another, until it is closed.

    `close` raises what went wrong meanwhile: LeaseError where no lease can be had."""

    def __init__(self, address: Path, pool: Sequence[str], what: str, began: Callable[[Lease], None], **options):
        """`options` are those of `leased`."""
        self.leases = Leases(address)
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
                with program:
                    self._lease_to(program)
            except Exception as error:
                self._error = error  # raised by close(), in the thread that waits for the program
                return

    def _lease_to(self, program: socket.socket) -> None:
        """Leases GPUs to the program at the other end until its process is gone: not until its end of a connection is,
        since the driver may take longer to free what the process had on the GPU."""
        pid, _, _ = PEER.unpack(program.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size))
        try:
            process = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        try:
            asked = {**self._options, "alone": self.leases.alone, "wanted": lambda: not self._is_over(0, process)}
            with self.leases.counted(self._pool, 1, self._what, **asked) as lease:
                self._began(lease)
                with suppress(ConnectionError):  # it was ended meanwhile
                    told = {"gpus": lease.gpus, "staying": len(lease.staying)}
                    socket.send_fds(program, [json.dumps(told).encode()], lease.files + lease.staying)
                self.leases.look_round(lease)
                while not self._is_over(LOOK_MS, process, program):
                    self.leases.look_round(lease)
        except NotWanted:
            return
        finally:
            os.close(process)

    def _is_over(self, patience_ms: int, process: int, program: socket.socket | None = None) -> bool:
        """Whether this process has ended or, where its end of the connection is told, given its lease back; or this
        server is closed. A connection that closes says nothing: the driver may still be freeing what it had there."""
        poll = select.poll()
        poll.register(process, select.POLLIN)
        if program is not None:
            poll.register(program, select.POLLIN)
        ready = {file for file, _ in poll.poll(patience_ms)}
        if self._closed.is_set() or process in ready:
            return True
        return bool(ready) and self._gave_back(program, process)

    def _gave_back(self, program: socket.socket, process: int) -> bool:
        """What a connection says that can be read: that the lease is given back, or that it is closed, which the end of
        the process follows."""
        try:
            if program.recv(len(GIVEN_BACK)) == GIVEN_BACK:
                return True
        except ConnectionError:
            pass
        while not self._is_over(LOOK_MS, process):
            pass
        return True
