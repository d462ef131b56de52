"""Whether a capture belongs to its run."""

import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

from profile_grid.results.capture_identity import (
    file_identity,
    identity_difference,
    quick_identity_difference,
    write_specification,
)
from profile_grid.results.results import FileIdentity, StageResult
from profile_grid.typed_json import parse_as
from tests.kernel_tables.synthetic import Synthetic
from tests.profile_grid.made_up_results import CAPTURE, changed

SPECIFICATION = {"program": {"run": "a_ctx8_forward"}, "backend": "nsys"}


@pytest.fixture
def captured(tmp_path):
    """A function that captures a run: its capture.json as it is read, and its capture.sqlite."""

    def capture(run, kernel="gemm"):
        (tmp_path / run).mkdir()
        path, specification = tmp_path / run / "capture.sqlite", changed(SPECIFICATION, program__run=run)
        Synthetic().range("step", 0, 100).kernel(kernel, at=10).write(path)
        write_specification(path, specification)
        return parse_as(
            StageResult, changed(CAPTURE, specification=specification) | {"files": {path.name: file_identity(path)}}
        ), path

    return capture


def test_a_capture_is_the_one_that_its_json_tells_of(captured):
    assert identity_difference(*captured("a")) is None


def test_the_capture_of_another_run_is_told_without_reading_all_of_it(captured):
    (capture, path), (_, other) = captured("a"), captured("b")
    shutil.copyfile(other, path)
    assert quick_identity_difference(capture, path) == "capture.sqlite is a capture of b with other settings"


def test_a_capture_that_was_changed_in_place_is_told_by_its_digest(captured):
    capture, path = captured("a")
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = end + 1")
    assert quick_identity_difference(capture, path) is None
    assert identity_difference(capture, path) == "the digest of capture.sqlite is not the one in the result"


def test_a_capture_that_lost_its_end_or_is_missing_is_told(captured):
    capture, path = captured("a")
    path.write_bytes(path.read_bytes()[:-4096])
    assert "but the result says" in identity_difference(capture, path)
    path.unlink()
    assert identity_difference(capture, path) == "capture.sqlite is missing"


def test_a_file_that_is_no_capture_of_ours_is_told(captured, tmp_path):
    capture, _ = captured("a")
    (tmp_path / "capture.sqlite").write_text("no SQLite")
    other = replace(capture, files={"capture.sqlite": FileIdentity(9, "00")})
    assert identity_difference(other, tmp_path / "capture.sqlite") == "capture.sqlite does not say what was captured"
