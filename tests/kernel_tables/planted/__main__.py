"""Captures every planted fault on a host with a GPU and nsys, and says whether its rule speaks, and it alone:

    python -m tests.kernel_tables.planted --output tests/captures/planted [FAULT ...]

Each capture is scrubbed (kernel_tables.reading.publishable) and compressed to FAULT.sqlite.gz, which test_captures.py
reads from then on, with the counters of ncu in FAULT.ncu.csv where the rule needs them. `exposed_communication` needs
two GPUs, `waiting_for_data` none. Status 1 where another rule speaks, or none.
"""

from __future__ import annotations

import argparse
import gzip
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from kernel_recorder.ncu_profile import ALL_KERNELS, Round, counters_command
from kernel_recorder.nsys_profile import profile_command
from kernel_tables.counters.metrics import METRICS
from kernel_tables.counters.reading import join_rounds, read_counters, read_kept_counters
from kernel_tables.diagnosis.diagnose import diagnose
from kernel_tables.diagnosis.rules import CODES, COUNTER_RULES
from kernel_tables.reading.publishable import write_publishable
from kernel_tables.trace import Trace

CLEAN = "clean"
FAULTS = (CLEAN, *CODES)
COUNTED = tuple(rule.code for rule in COUNTER_RULES)
ON_TWO_GPUS = ("exposed_communication",)
ON_THE_CPU = ("waiting_for_data",)  # by the recorder, since nsys does not see the DataLoader's ranges


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
        program = [sys.executable, "-m", "tests.kernel_tables.planted.programs", fault]
        if fault in ON_THE_CPU:
            record_on_the_cpu(program, Path(scratch, "capture.sqlite"), target)
            return told(fault, target)
        with second_process(program) if fault in ON_TWO_GPUS else nullcontext() as environment:
            record(program, report, environment)
        keep(report, target)
        if fault in COUNTED:
            count(program, Path(scratch, "ncu.csv"), counted(target))
    return told(fault, target)


def told(fault: str, target: Path) -> set[str]:
    """The rules that speak of a capture, printed."""
    found = speaking(target)
    print(f"{fault}: {', '.join(sorted(found)) or 'nothing'} ({target.stat().st_size / 1e6:.2f} MB)", flush=True)
    return found


@contextmanager
def second_process(program: list[str]) -> Iterator[dict[str, str]]:
    """The program runs on the second GPU; what is given is the environment of that on the first."""
    both = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517", "WORLD_SIZE": "2", "NCCL_NVLS_ENABLE": "0"}
    with subprocess.Popen(program, env=both | {"RANK": "1"}) as beside:
        try:
            yield both | {"RANK": "0"}
            beside.wait(timeout=60)
        finally:
            beside.kill()


def record(program: list[str], report: Path, environment: dict[str, str] | None = None) -> None:
    """Runs a program under nsys: REPORT.nsys-rep."""
    command = profile_command(program, report, options=["--cuda-graph-trace=node"])
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)


def record_on_the_cpu(program: list[str], capture: Path, target: Path) -> None:
    """Records three steps of a program, and keeps them compressed."""
    record = ["kernel_tables", "record", "--profiler", "torch", "--steps", "3", "-o", str(capture), "--"]
    alone = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-m", *record, *program], check=True, stdout=subprocess.DEVNULL, env=alone)
    target.write_bytes(gzip.compress(capture.read_bytes(), mtime=0))


def count(program: list[str], printed: Path, target: Path) -> None:
    """Runs a program under ncu, and writes the counters of what it PRINTED, which names the host too, to TARGET."""
    subprocess.run(
        counters_command(program, printed, Round(ALL_KERNELS, 1, METRICS)), check=True, stdout=subprocess.DEVNULL
    )
    join_rounds([read_counters(printed)]).to_csv(target, index=False)


def counted(capture: Path) -> Path:
    """Where the counters of a capture's program are."""
    return capture.with_name(capture.name.replace(".sqlite.gz", ".ncu.csv"))


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
    counters = read_kept_counters(counted(capture)) if counted(capture).exists() else None
    with Trace(capture) as trace:
        return {one.code for one in diagnose(trace, counters=counters) if not one.abstained}


if __name__ == "__main__":
    sys.exit(main())
