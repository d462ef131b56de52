"""A capture that cannot be believed is refused by every command, with the message of the code that `check` gives."""

import json
from pathlib import Path

import pytest

from kernel_tables.__main__ import main
from kernel_tables.errors import IMPOSSIBLE
from tests.kernel_tables.synthetic import Synthetic, changed
from tests.kernel_tables.test_frozen import SUBCOMMANDS
from tests.kernel_tables.test_hostile_shapes import WithoutLookups
from tests.kernel_tables.test_impossible import KERNEL, NVTX, whole

READING_NO_CAPTURE = {"names", "record"}
LOOKING_FOR_FAULTS = {"check"}
COMMANDS = sorted(SUBCOMMANDS - READING_NO_CAPTURE - LOOKING_FOR_FAULTS)
TO_A_FILE = {"report", "trace"}
STATEMENTS = {
    "wrong_type": f"UPDATE {KERNEL} SET start = 'soon'",
    "no_time": f"UPDATE {KERNEL} SET start = NULL",
    "negative_time": f"UPDATE {NVTX} SET start = -5",
    "ends_before_start": f'UPDATE {KERNEL} SET start = "end" + 1',
    "outside_capture": f'UPDATE {KERNEL} SET "end" = 1001',
    "longer_than_capture": "UPDATE ANALYSIS_DETAILS SET startTime = 900, duration = 100",
    "impossible_bounds": "UPDATE ANALYSIS_DETAILS SET stopTime = -1",
    "kernels_without_names": "DELETE FROM StringIds WHERE value = 'gemm'",
    "ranges_without_names": "DELETE FROM StringIds WHERE value = 'registered'",
}


def faulty_capture(code: str, path: Path) -> Path:
    """A capture with the fault of this code, and no other."""
    if code in STATEMENTS:
        changed(whole().write(path), STATEMENTS[code])
    elif code == "damaged_file":
        content = whole().write(path).read_bytes()
        path.write_bytes(content[: len(content) - 4096] + bytes(4096))
    elif code == "invalid_json":
        path.write_text('{"traceEvents": [')
    elif code == "times_overflow":
        whole().write(path, lacking=("ANALYSIS_DETAILS",))
        changed(path, f'UPDATE {KERNEL} SET start = 0, "end" = {2**61}')
    elif code == "too_many_open_ranges":
        leaking(1500).write(path)
    else:
        raise NotImplementedError(f"make a capture with the fault {code}")
    return path


def leaking(depth: int) -> Synthetic:
    """A capture whose ranges are opened and never closed: too_many_open_ranges."""
    capture = WithoutLookups()
    for number in range(depth):
        capture.range("leak", number, None).kernel("k", at=number)
    return capture


@pytest.mark.parametrize("code", IMPOSSIBLE)
def test_every_command_refuses_what_check_calls_impossible(tmp_path, monkeypatch, capsys, code):
    monkeypatch.chdir(tmp_path)
    path = faulty_capture(code, tmp_path / "capture.sqlite")
    assert main(["check", "--format", "json", str(path)]) == 1
    errors = [row for row in json.loads(capsys.readouterr().out) if row["severity"] == "error"]
    assert {row["code"] for row in errors} == {code}
    for command in COMMANDS:
        output = ["-o", str(tmp_path / command)] if command in TO_A_FILE else []
        captures = [str(path)] * (2 if command == "diff" else 1)
        status = main([command, *captures, *output])
        printed, refusal = capsys.readouterr()
        assert (command, status, printed) == (command, 2, "")
        assert errors[0]["message"] in refusal and refusal.count("\n") == 1, f"{command} says {refusal}"
        assert not (tmp_path / command).exists()


def test_the_same_capture_without_a_fault_is_read_by_every_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = whole().write(tmp_path / "capture.sqlite")
    for command in COMMANDS:
        output = ["-o", str(tmp_path / command)] if command in TO_A_FILE else []
        captures = [str(path)] * (2 if command == "diff" else 1)
        assert main([command, *captures, *output]) == 0, command
