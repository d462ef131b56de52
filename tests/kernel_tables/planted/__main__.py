"""Captures every planted fault on a host with a GPU and nsys, and says whether its rule speaks, and it alone:

    python -m tests.kernel_tables.planted --output tests/captures/planted [FAULT ...]

Each capture is scrubbed (kernel_tables.reading.publishable) and compressed to FAULT.sqlite.gz, which test_captures.py
reads from then on. Status 1 where another rule speaks, or none.
"""

from __future__ import annotations

import argparse
import gzip
import subprocess
import sys
import tempfile
from pathlib import Path

from kernel_tables.diagnosis.diagnose import diagnose
from kernel_tables.diagnosis.rules import CODES
from kernel_tables.reading.publishable import write_publishable
from kernel_tables.recording.nsys_profile import profile_command
from kernel_tables.trace import Trace

CLEAN = "clean"
LACKING = {"low_occupancy", "wave_tail", "exposed_communication"}  # counters; a second GPU
FAULTS = (CLEAN, *(code for code in CODES if code not in LACKING))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, help="folder for the captures")
    parser.add_argument("faults", nargs="*", metavar="FAULT", help="default: all")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    faults = options.faults or FAULTS
    wrong = [fault for fault in faults if captured(fault, options.output) != expected(fault)]
    print(f"{len(wrong)} of {len(faults)} are not as they ought to be: {', '.join(wrong) or '-'}")
    return int(bool(wrong))


def captured(fault: str, folder: Path) -> set[str]:
    """Captures one fault into FOLDER; the rules that speak of it."""
    with tempfile.TemporaryDirectory() as scratch:
        report, target = Path(scratch, "capture"), folder / f"{fault}.sqlite.gz"
        record([sys.executable, "-m", "tests.kernel_tables.planted.programs", fault], report)
        keep(report, target)
    found = speaking(target)
    print(f"{fault}: {', '.join(sorted(found)) or 'nothing'} ({target.stat().st_size / 1e6:.2f} MB)", flush=True)
    return found


def record(program: list[str], report: Path) -> None:
    """Runs a program under nsys: REPORT.nsys-rep."""
    command = profile_command(program, report, options=["--cuda-graph-trace=node"])
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def keep(report: Path, target: Path) -> None:
    """Writes the scrubbed and compressed export of REPORT.nsys-rep, and the export beside that."""
    exported, kept = report.with_suffix(".sqlite"), report.with_suffix(".kept.sqlite")
    export = ["nsys", "export", "--type=sqlite", f"--output={exported}", f"{report}.nsys-rep"]
    subprocess.run(export, check=True, stdout=subprocess.DEVNULL)
    write_publishable(exported, kept)
    target.write_bytes(gzip.compress(kept.read_bytes(), mtime=0))


def expected(fault: str) -> set[str]:
    """The rules that ought to speak."""
    return set() if fault == CLEAN else {fault}


def speaking(capture: Path) -> set[str]:
    """The rules that speak of a capture."""
    with Trace(capture) as trace:
        return {one.code for one in diagnose(trace) if not one.abstained}


if __name__ == "__main__":
    sys.exit(main())
