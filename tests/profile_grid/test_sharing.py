"""Archives of results: what is packed, in which bytes, and which archives are refused."""

import json
import os
import zipfile
from types import SimpleNamespace

import pytest

from profile_grid.errors import OutsideError
from profile_grid.sharing import archive
from profile_grid.sharing.archive import RUN_COLUMNS, BadArchive, read_manifest, unpack, write_archive
from profile_grid.study.stages import NOT_ASKED, OPERATOR

NUMBERS = ("context_length", "batch_size", "gpus", "steps_warmed")
RUN = dict.fromkeys(RUN_COLUMNS, "x") | dict.fromkeys(NUMBERS, 5) | {OPERATOR.status_column: NOT_ASKED}
FILES = {
    "grid.json": "{}",
    "runs/a/timing.json": "[1]",
    "runs/a/capture.sqlite": "a recording",
    "runs/a/capture_rank1.sqlite": "that of its second rank",
    "runs/a/capture.nsys-rep": "an environment",
    "runs/a/status.json": "complete",
    "tables/kernels.csv": "kernel\n",
    "answers/answers.md": "# Answers",
    "report.html": "<p>",
    "machine.txt": "the host",
    "notes.txt": "nothing of ours",
    "tables/.kernels.csv.12.partial": "half written",
}


@pytest.fixture
def results(tmp_path):
    for name, text in FILES.items():
        (tmp_path / "results" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "results" / name).write_text(text)
    (tmp_path / "results/figures").symlink_to("/etc")
    return tmp_path / "results"


def packed(results, path, captures=False):
    write_archive(results, path, captures=captures, version="1", grid="g", runs=[RUN])
    return path


def test_results_are_packed_without_recordings_and_without_what_is_not_ours(results, tmp_path):
    assert list(read_manifest(packed(results, tmp_path / "a.zip")).files) == [
        "answers/answers.md", "grid.json", "report.html", "runs/a/status.json", "runs/a/timing.json",
        "tables/kernels.csv",
    ]  # fmt: skip


def test_recordings_are_packed_on_request_and_a_report_of_nsys_never(results, tmp_path):
    files = read_manifest(packed(results, tmp_path / "a.zip", captures=True)).files
    assert {"runs/a/capture.sqlite", "runs/a/capture_rank1.sqlite"} < set(files)
    assert "runs/a/capture.nsys-rep" not in files


def test_an_archive_holds_no_digest_of_the_value_of_a_variable(results, tmp_path):
    given = {"values": {"NCCL_ALGO": "Ring"}, "salt": "5a17", "digests": {"TOKEN": "d16e57"}, "gpus": []}
    (results / "runs/a/timing.json").write_text(json.dumps({"status": "complete", "environment": given}))
    unpack(packed(results, tmp_path / "a.zip"), tmp_path / "out")
    text = (tmp_path / "out/runs/a/timing.json").read_text()
    assert json.loads(text)["environment"] == given | {"salt": None, "digests": {}}
    assert "d16e57" not in text and "5a17" not in text


def test_long_tables_are_packed_and_records_of_what_made_files_are_not(results, tmp_path):
    for name in ("made.json", "kernels/one_ctx8.md", "kernels/made.json"):
        (results / "tables/markdown" / name).parent.mkdir(parents=True, exist_ok=True)
        (results / "tables/markdown" / name).write_text("{}")
    files = read_manifest(packed(results, tmp_path / "a.zip")).files
    assert [name for name in files if "markdown" in name] == ["tables/markdown/kernels/one_ctx8.md"]


def test_the_same_results_are_the_same_bytes_whenever_and_by_whom_they_are_packed(results, tmp_path):
    first = packed(results, tmp_path / "a.zip").read_bytes()
    for path in results.rglob("*.json"):
        os.utime(path, (1, 1))
        path.chmod(0o600)
    assert packed(results, tmp_path / "b.zip").read_bytes() == first
    (results / "grid.json").write_text("[]")
    assert packed(results, tmp_path / "c.zip").read_bytes() != first


def test_what_was_packed_comes_out(results, tmp_path):
    manifest = unpack(packed(results, tmp_path / "a.zip"), tmp_path / "out")
    assert {name: (tmp_path / "out" / name).read_text() for name in manifest.files} == {
        name: FILES[name] for name in manifest.files
    }
    assert (manifest.grid, manifest.runs) == ("g", [RUN])


def test_what_does_not_apply_to_a_run_of_an_operator_may_lack_a_value_in_the_manifest_and_the_gpus_may_not(tmp_path):
    row = RUN | {"model": "attention", "context_length": None, "mode": None}
    assert read_manifest(written(tmp_path / "a.zip", manifest={"runs": [row]})).runs == [row]
    with pytest.raises(BadArchive, match="runs are not rows of"):
        read_manifest(written(tmp_path / "b.zip", manifest={"runs": [row | {"gpus": None}]}))


def member(name, content=b"", kind=0o10):
    info = zipfile.ZipInfo(name)
    info.external_attr, info.compress_type = (kind << 28) | (0o644 << 16), zipfile.ZIP_DEFLATED
    return info, content


def written(path, *members, manifest=None):
    """An archive with these members after a manifest, which lists nothing unless it is given."""
    listed = {"format": 1, "version": "1", "grid": "g", "runs": [RUN], "files": {}} | (manifest or {})
    with zipfile.ZipFile(path, "w") as made:
        for info, content in (member("manifest.json", json.dumps(listed).encode()), *members):
            made.writestr(info, content)
    return path


TIMING = "runs/a/timing.json"


@pytest.mark.parametrize(
    ("members", "manifest", "said"),
    [
        ([member("../evil.json")], {}, "'../evil.json', which is not a file of results"),
        ([member("/etc/passwd")], {}, "'/etc/passwd', which is not a file of results"),
        ([member("runs/../../timing.json")], {}, "which is not a file of results"),
        ([member("runs\\a\\timing.json")], {}, "which is not a file of results"),
        ([member("runs/a/evil.py")], {}, "which is not a file of results"),
        ([member("runs/a/")], {}, "which is not a file of results"),
        ([member(TIMING, b"/etc", kind=0o12)], {}, "a link or a device"),
        ([member(TIMING)], {}, "not the file that its manifest.json lists"),
        ([], {"files": {TIMING: {"bytes": 1, "sha256": "0"}}}, "not the file that its manifest.json lists"),
        ([member(TIMING, b"1")], {"files": {TIMING: {"bytes": 1, "sha256": "0"}}}, "differs from the file"),
        ([], {"format": 9}, "its format is 9, not 1"),
        ([], {"files": 5}, "files is 5, not an object"),
        ([], {"runs": [{}]}, "runs are not rows of"),
        ([], {"runs": [RUN | {"model": []}]}, "runs are not rows of"),
        ([], {"runs": [RUN | {"gpus": None}]}, "runs are not rows of"),
        ([], {"runs": [RUN | {"steps_warmed": "5"}]}, "runs are not rows of"),
        ([], {"files": {"\x1b[2J": {"bytes": 1, "sha256": "0"}}}, "\\x1b[2J is not the file that"),
        ([], {"format": ["x" * 9999]}, "its format is ['xxx"),
    ],
)  # fmt: skip
def test_an_archive_that_is_none_of_ours_is_refused_in_one_line_that_names_it(tmp_path, members, manifest, said):
    path = written(tmp_path / "a.zip", *members, manifest=manifest)
    with pytest.raises(BadArchive, match=r"a\.zip: ") as raised:
        unpack(path, tmp_path / "out")
    assert said in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1
    assert len(str(raised.value)) < len(str(path)) + 400
    assert not (tmp_path / "evil.json").exists()


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_files_of_one_name_are_refused(tmp_path):
    path = written(tmp_path / "a.zip", member(TIMING), member(TIMING))
    with pytest.raises(BadArchive, match="two files of the same name"):
        unpack(path, tmp_path / "out")


def test_an_archive_that_would_fill_the_disk_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    path = written(tmp_path / "a.zip", member(TIMING, bytes(2_000_000)))
    monkeypatch.setattr(archive, "MAX_BYTES", 1_000_000)
    with pytest.raises(BadArchive, match="it needs"):
        unpack(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_archive_for_which_the_disk_is_too_small_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    listed = {"files": {TIMING: {"bytes": 2_000_000, "sha256": "0"}}}
    path = written(tmp_path / "a.zip", member(TIMING, bytes(2_000_000)), manifest=listed)
    monkeypatch.setattr(archive.shutil, "disk_usage", lambda folder: SimpleNamespace(free=1_999_999))
    with pytest.raises(OutsideError, match=r"it needs 2,000,000 bytes, and .* has 1,999,999 free"):
        unpack(path, tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize("damage", [lambda raw: b"no zip", lambda raw: raw[: len(raw) // 2], lambda raw: b""])
def test_what_is_damaged_is_refused(results, tmp_path, damage):
    path = packed(results, tmp_path / "a.zip")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(BadArchive, match="it is damaged"):
        read_manifest(path)


def test_a_byte_that_was_changed_is_noticed(results, tmp_path):
    path = packed(results, tmp_path / "a.zip")
    raw = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as made:
        at = made.getinfo("report.html").header_offset + 30 + len("report.html")
    raw[at + 1] ^= 0xFF
    path.write_bytes(raw)
    with pytest.raises(BadArchive):
        unpack(path, tmp_path / "out")
