"""Result files, whole and damaged, as the analysis reads them."""

import json

import pytest

from profile_grid.results.results import FORMAT, BadResult, read_result, read_status
from tests.profile_grid.made_up_results import CAPTURE, TIMING, changed


@pytest.fixture
def timing(tmp_path):
    """A function that writes a timing.json with changes below it ("program.machine.driver") and reads it."""

    def read(**changes):
        (tmp_path / "timing.json").write_text(json.dumps(changed(TIMING, **changes)))
        return read_result(tmp_path / "timing.json")

    return read


def test_a_whole_file_is_read_into_its_fields(timing):
    result = timing(program__machine__driver="580.82")
    assert result.program.machine.driver == "580.82"
    assert result.program.step_seconds == [0.01, 0.02]
    assert result.git.git_commit is None


def test_a_capture_that_was_ended_has_no_program(tmp_path):
    path = tmp_path / "capture.json"
    path.write_text(json.dumps(CAPTURE | {"status": "incomplete", "reason": "nsys hung", "program": None}))
    assert read_result(path).program is None


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "it is damaged (Expecting value"),
        (b'{"status": "comp', "it is damaged (Unterminated string"),
        (b"\xff\xfe\x00", "it is damaged ('utf-8' codec"),
        (b"[" * 100_000, "it is damaged (maximum recursion depth"),
        (b"[]", "it is [], not an object"),
        (b"{}", "status is missing"),
        (b'{"status": 7, "reason": null, "warnings": []}', "status is 7, not text"),
        (
            b'{"status": "done", "reason": null, "warnings": []}',
            "status is 'done', which is not one of complete",
        ),
        (b'{"status": "complete", "reason": null, "warnings": [1]}', "warnings[0] is 1, not text"),
    ],
)
def test_a_damaged_file_is_named_in_one_line_with_what_is_wrong_and_the_command(tmp_path, content, what):
    path = tmp_path / "status.json"
    path.write_bytes(content)
    with pytest.raises(BadResult) as raised:
        read_status(path)
    message = str(raised.value)
    assert message.startswith(f"{path}: {what}")
    assert message.endswith(f"make it again: snakemake --cores 1 all --forcerun {path}")
    assert "\n" not in message


def test_a_file_that_is_missing_is_named(tmp_path):
    with pytest.raises(BadResult, match=r"status.json: it is missing; make it again: snakemake"):
        read_status(tmp_path / "status.json")


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"program__machine": None}, "program.machine is None, not an object"),
        ({"program__machine__cores": "2"}, "program.machine.cores is '2', not a whole number"),
        ({"program__machine__cores": True}, "program.machine.cores is True, not a whole number"),
        ({"program__step_seconds": [0.01, None]}, r"program.step_seconds\[1\] is None, not a number"),
        ({"program__step_seconds": [0.01]}, "program has 1 times of step and 2 measured steps"),
        ({"program__phase_seconds": {"loss": [0.1] * 3}}, "program has 3 times of loss and 2 measured steps"),
        ({"program__step_seconds": [0.01, -0.02]}, "program has -0.02 s as a time of step"),
        ({"program__step_seconds": [0.01, 0.0]}, "program has 0.0 s as a time of step"),
        ({"program__step_seconds": [0.01, float("inf")]}, "program has inf s as a time of step"),
        ({"program__warmup_seconds": []}, "program has 0 times of step and 1 warm-up steps"),
        ({"program": None}, "status is complete, and program is null"),
        ({"format": 1}, f"it has format 1, this version of the project reads {FORMAT}"),
    ],
)
def test_what_cannot_be_is_named_with_its_field(timing, change, what):
    with pytest.raises(BadResult, match=what):
        timing(**change)
