"""After any sequence of changes, what the plan runs is what a clean build would change: no more, no less."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from profile_grid.freshness import digests, jobs
from profile_grid.freshness.digests import FileDigests, digest_of_source
from profile_grid.freshness.jobs import JobPlan, PlannedJob
from profile_grid.freshness.records import RECORDS_FILE
from tests.profile_grid.freshness.small_study import JOBS, PROGRAMS, SmallStudy, older

OUTPUTS = [output for *_, outputs in JOBS.values() for output in outputs]
RAW = ["raw/one", "raw/two"]


def edit(study, program):
    study.version[program] += 1
    study.write_program(program)


def edit_back(study, program):
    study.version[program] -= 1
    study.write_program(program)


def edit_in_the_past(study, program):
    edit(study, program)
    older(study.folder / "code" / program)


def remark(study, program):
    study.remarks += 1
    study.write_program(program)


def set_value(study, key):
    study.settings[key] = 1 - study.settings[key]


def replace_raw(study, path):
    study.write(path, study.folder.joinpath(path).read_text() + "+")
    older(study.folder / path)


def replace_raw_in_place(study, path):
    """Other content of the same length, with the time that the file had."""
    file = study.folder / path
    before = file.stat()
    file.write_text("".join("-" if letter == "+" else "+" for letter in file.read_text()))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def delete(study, path):
    (study.folder / path).unlink(missing_ok=True)


def tamper(study, path):
    if (study.folder / path).exists():
        study.write(path, "another")
        older(study.folder / path)


def touch_everything(study, _):
    for path in study.folder.rglob("*"):
        os.utime(path)


def copy(study, _):
    study.move_to(study.folder.with_name(study.folder.name + "c"))
    os.chdir(study.folder)


def run_all(study, _):
    study.run(study.planned())
    assert study.would_change() == set()


def run_some(study, name):
    """As much as a job and what it needs, as when a target is named."""
    planned, needed = study.planned(), {name}
    for other in reversed(JOBS):
        if set(JOBS[other][3]) & {path for each in needed for path in JOBS[each][2]}:
            needed.add(other)
    study.run(planned & needed)


CHANGES = st.one_of(
    st.tuples(st.sampled_from([edit, edit_back, edit_in_the_past, remark]), st.sampled_from(list(PROGRAMS))),
    st.tuples(st.just(set_value), st.sampled_from(["a", "b"])),
    st.tuples(st.sampled_from([replace_raw, replace_raw_in_place]), st.sampled_from(RAW)),
    st.tuples(st.sampled_from([delete, tamper]), st.sampled_from(OUTPUTS)),
    st.tuples(st.sampled_from([touch_everything, copy, run_all]), st.none()),
    st.tuples(st.just(run_some), st.sampled_from(list(JOBS))),
)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(CHANGES, max_size=12))
def test_the_plan_runs_what_a_clean_build_would_change(tmp_path_factory, monkeypatch, changes):
    small = SmallStudy(tmp_path_factory.mktemp("study") / "s")
    monkeypatch.chdir(small.folder)
    run_all(small, None)
    for change, argument in changes:
        change(small, argument)
        expected = small.would_change()
        assert small.planned() >= expected, f"old outputs after {change.__name__} {argument}"
        assert small.planned() == downstream(expected), f"restless after {change.__name__} {argument}"
    run_all(small, None)
    assert small.planned() == set()


def downstream(names: set[str]) -> set[str]:
    """These jobs, and those that read what they make: an output that was only damaged is made again as it was, and what
    reads it cannot know that before."""
    found = set(names)
    for name, (_, _, inputs, _) in JOBS.items():
        if any(set(inputs) & set(JOBS[other][3]) for other in found):
            found.add(name)
    return found


def test_without_a_record_an_output_is_made_again(tmp_path, monkeypatch):
    small = SmallStudy(tmp_path / "s")
    monkeypatch.chdir(small.folder)
    run_all(small, None)
    Path("made", RECORDS_FILE).unlink()
    assert small.planned() == {"left", "right", "both", "end"}


@pytest.mark.parametrize("damage", ["", "[]", "{", '{"left": {}}', '{"left": 1}'])
def test_a_damaged_record_is_no_record(tmp_path, monkeypatch, damage):
    small = SmallStudy(tmp_path / "s")
    monkeypatch.chdir(small.folder)
    run_all(small, None)
    Path("made", RECORDS_FILE).write_text(damage)
    assert {"left", "right"} <= small.planned()


def test_another_version_of_a_package_that_a_program_imports_makes_its_outputs_stale(tmp_path, monkeypatch):
    small = SmallStudy(tmp_path / "s")
    small.write("code/shared.py", "def table():\n    import pandas.api\n")  # `left` and `both` import it
    monkeypatch.chdir(small.folder)
    run_all(small, None)
    monkeypatch.setattr(jobs, "present_version", {"pandas": "0.1"}.get)
    assert small.planned() == {"left", "both", "end"}
    monkeypatch.setattr(jobs, "present_version", {"altair": "0.1"}.get)
    monkeypatch.setattr(jobs, "is_planners_python", lambda: False)  # whose packages nobody knows
    assert small.planned() == set()


def test_a_file_that_may_not_be_read_is_a_reason_to_run_by_its_name():
    def reason():
        raise PermissionError(13, "Permission denied", "raw/one")

    plan = JobPlan()
    plan.add(PlannedJob("one", (), ("a",), reason))
    assert plan.reason(plan.job_of("a")) == "a file may not be read: raw/one"


def test_a_job_that_is_asked_for_by_force_runs_with_all_that_reads_its_outputs():
    plan = JobPlan(is_forced=lambda job: job.name == "one")
    for job in (("one", (), ("a",)), ("two", ("a",), ("b",)), ("three", (), ("c",))):
        plan.add(PlannedJob(*job, lambda: None))
    assert [plan.reason(plan.job_of(path)) is not None for path in "abc"] == [True, True, False]


def test_two_jobs_that_write_one_file_are_an_error():
    plan = JobPlan()
    plan.add(PlannedJob("one", (), ("a",), lambda: None))
    with pytest.raises(ValueError, match="a is an output of one and of two"):
        plan.add(PlannedJob("two", (), ("a",), lambda: None))


def test_a_digest_is_remembered_only_of_a_file_that_has_settled(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_text("one")
    digest_of = FileDigests()
    digest_of(str(path))
    assert digest_of.known == {}
    monkeypatch.setattr(digests, "SETTLED_NS", -(10**18))
    before = digest_of(str(path))
    monkeypatch.setattr(digests, "sha256_of_file", lambda path: pytest.fail("read again"))
    assert digest_of(str(path)) == before
    os.utime(path)
    with pytest.raises(pytest.fail.Exception, match="read again"):
        digest_of(str(path))


def test_a_file_of_the_same_size_and_time_is_read_again_if_its_inode_changed(tmp_path, monkeypatch):
    monkeypatch.setattr(digests, "SETTLED_NS", -(10**18))
    path = tmp_path / "file"
    path.write_text("one")
    digest_of, before = FileDigests(), path.stat()
    first = digest_of(str(path))
    path.write_text("two")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert digest_of(str(path)) != first


@pytest.mark.parametrize(
    ("template", "is_same"),
    [
        ("a {# other words #} b", True),
        ("a {#\nmore\nlines #} b", True),
        ("a  b", False),  # a comment may leave an empty line
        ("a {#- words #} b", False),
        ("a {# words -#} b", False),
        ("a {# words #} c", False),
    ],
)
def test_the_words_of_a_comment_in_a_template_do_not_count_and_its_white_space_does(template, is_same):
    before, after = (digest_of_source("a.j2", text.encode()) for text in ("a {# words #} b", template))
    assert (before == after) == is_same
