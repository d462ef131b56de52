"""A job of a stage: its settings and leases, its attempts, and what went wrong in them."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from profile_grid.host.leases.lease_server import Leases

INSTALL_NSYS = (
    "install Nsight Systems (https://developer.nvidia.com/nsight-systems, or the CUDA toolkit's nsight-systems package)"
)


@dataclass(frozen=True)
class Problem:
    """Why an attempt is incomplete: the code of the cause, and a sentence about it that this project wrote.

    Both are published. The output of another program is not: it may hold paths, names of hosts and users, or a token.
    `quote` is one line of that output, for the terminal; the log has all of it.
    """

    code: str
    text: str
    quote: str = ""

    def __str__(self) -> str:
        return self.text


def combined_problem(problems: list[Problem]) -> Problem | None:
    """One problem with the texts of all, and the code and the quote of the first; None if there are no problems."""
    if not problems:
        return None
    return Problem(problems[0].code, "; ".join(problem.text for problem in problems), problems[0].quote)


@dataclass(frozen=True)
class Job:
    """One stage of one run."""

    specification: dict[str, Any]  # of the measurement; it is stored with the result
    folder: Path  # of the run; the stage writes its files there
    scratch: Path  # deleted when the job ends
    log: Path
    time_limit_s: float
    leases: Leases  # those of its programs

    @property
    def program(self) -> dict[str, Any]:
        """The specification of the measured program."""
        return self.specification["program"]

    def append_to_log(self, text: str) -> None:
        """Adds text that is not published, such as the output of another program."""
        with self.log.open("a", encoding="utf-8", errors="replace") as stream:
            stream.write(f"{text}\n")


@dataclass(frozen=True)
class Attempt:
    """The outcome of one attempt at a capture, or of one round of counters."""

    program: dict | None  # the program's result; None if it wrote none
    seconds: dict[str, float] = field(default_factory=dict)  # by part of the attempt
    problem: Problem | None = None  # why the attempt is incomplete; None if it is not
    nsys_version: str | None = None  # None for another profiler
    host_hidden: bool | None = None  # whether nsys could see neither other processes nor the host's name
    devices: tuple[str | None, ...] = ()  # the GPU of every rank, by a hash; () for a single rank
