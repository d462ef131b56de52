"""The nsys on this machine: where it is, which version, and the export of its reports."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from kernel_tables.errors import TraceError
from kernel_tables.reading import schema, soundness

PAYLOADS_OPTION = "--include-blobs"
VERSION = re.compile(r"version\s+(\d[\w.]*)")


def find() -> Path | None:
    """The path of the nsys on PATH, None if there is none."""
    path = shutil.which("nsys")
    return Path(path) if path else None


def version() -> str | None:
    """The version of the nsys on PATH, such as 2025.3.1.90; None if there is none.

    Raises TraceError if it cannot run, or prints no version.
    """
    nsys = find()
    if nsys is None:
        return None
    output = _run([str(nsys), "--version"], timeout_s=60).stdout
    match = VERSION.search(output)
    if not match:
        raise TraceError(f"{nsys}: `--version` prints {output.strip()[:80]!r}, not a version; is this NVIDIA's nsys?")
    return match[1]


def version_numbers() -> tuple[int, ...]:
    """The version as numbers to compare, (2025, 3, 1, 90); empty without nsys."""
    return tuple(int(number) for number in re.findall(r"\d+", (version() or "").partition("-")[0]))


def export_report(report: Path, target: Path, payloads: bool = False) -> Path:
    """Exports `report` as SQLite to `target`, completely or not at all, and returns `target`. With `payloads`, NVTX
    payloads (Python stacks, bytes of NCCL's calls) are exported, too, if this nsys can.

    A failed export of nsys leaves a partial file, newer than its report. So nsys writes to another name, and the file
    is checked before it is renamed. Raises TraceError without nsys, or if the export fails, with nsys's own reason.
    """
    nsys = find()
    if nsys is None:
        raise TraceError(
            f"{report}: a report has to be exported by nsys and none is on PATH; export it where it was made"
            f" (`nsys export --type sqlite {report.name}`) and give the .sqlite"
        )
    partial = target.with_name(f".{target.stem}.{os.getpid()}.partial.sqlite")
    options = ["--type", "sqlite", "--force-overwrite", "true", "--output", str(partial)]
    if payloads and PAYLOADS_OPTION in _run([str(nsys), "export", "--help"], timeout_s=60).stdout:
        options += [PAYLOADS_OPTION, "true"]
    try:
        export = _run([str(nsys), "export", *options, str(report)], timeout_s=900)
        if export.returncode or not partial.exists():
            reason = last_line(f"{export.stderr}\n{export.stdout}")
            raise TraceError(
                f"{report}: `nsys export` of {nsys} failed (status {export.returncode}: {reason}); the report is"
                " damaged, or newer than this nsys: copy it again, or use the nsys that made it"
            )
        _require_usable_export(partial, report)
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)
    return target


def _require_usable_export(exported: Path, report: Path) -> None:
    """Raises TraceError unless the export is complete and has tables of nsys."""
    try:
        soundness.require_whole_sqlite(exported)
        schema.tables_of_nsys(exported, user_path=exported)
    except TraceError as error:
        raise TraceError(
            f"{report}: `nsys export` succeeded but left no usable SQLite ({error}); check the disk's free space"
        ) from error


def _run(command: list[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        raise TraceError(
            f"{command[0]}: `{' '.join(command[1:2])}` was ended after {timeout_s:g} s without an answer; try it by"
            " hand, and check the disk"
        ) from error
    except OSError as error:
        raise TraceError(
            f"{command[0]}: cannot be started ({error.strerror}); check the installation of nsys"
        ) from error


def last_line(text: str) -> str:
    """The last line of a message that is not empty, "nothing" without one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "nothing"
