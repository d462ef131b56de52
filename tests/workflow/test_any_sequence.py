"""After any sequence of edits, copies, touches, deletions and other variables, Snakemake plans what a clean build would
change: no more, no less.

SEQUENCES=200 tries as many random sequences; by default there are a few, always the same.
"""

import os
import random
import shutil

import pytest

from profile_grid.freshness.records import LOCK_FILE, RECORDS_FILE
from tests.workflow.small_workflow import OUTPUTS, PROGRAMS, RUNS, SmallWorkflow, older, with_readers

SEQUENCES = int(os.environ.get("SEQUENCES", "2"))
LENGTH = 12
ALL_OUTPUTS = [path for paths in OUTPUTS.values() for path in paths]
VERSIONED = [*PROGRAMS, "templates/document.j2"]
AS_MODULE = ("--snakefile", "module.smk")


def edit(small, rng):
    """Another version of a program, often one that was there before, sometimes with an old time."""
    name = rng.choice(VERSIONED)
    small.version[name] = rng.choice([0, 1, 2])
    small.write_program(name)
    if rng.random() < 0.5:
        older(small.folder / name)


def remark(small, rng):
    small.remarks += 1
    for name in VERSIONED:
        small.write_program(name)


def another_setting(small, rng):
    run = rng.choice([*RUNS, None])
    if run:
        small.settings["runs"][run] = rng.choice([0, 1])
    else:
        small.settings["class"] = rng.choice([0, 1])
    small.write_settings()


def another_variable(small, rng):
    """Two that count, one of them hidden, and two that do not."""
    small.environment[rng.choice(["GIVEN", "NCCL_TEST", "UNRELATED", "CUDA_VISIBLE_DEVICES"])] = rng.choice("01")


def optional_module(small, rng):
    small.optional = rng.choice([None, 0, 1])
    (small.folder / "optional.py").unlink(missing_ok=True)
    if small.optional is not None:
        small.write("optional.py", f"VERSION = {small.optional}\n")


def hidden_module(small, rng):
    """A package of the name of layers.py, which hides it; always another version, so that it can be seen."""
    small.hiding = rng.choice([None, 7, 8])
    shutil.rmtree(small.folder / "layers", ignore_errors=True)
    if small.hiding is not None:
        small.write("layers/__init__.py", f"VERSION = {small.hiding}\n")


def delete(small, rng):
    (small.folder / rng.choice(ALL_OUTPUTS)).unlink(missing_ok=True)


def delete_documents(small, rng):
    shutil.rmtree(small.folder / rng.choice(["results/documents", "results/documents/parts"]), ignore_errors=True)


def tamper(small, rng):
    """Other bytes in an output, with an old time. What a result says of itself is believed: see `replace_result`."""
    path = small.folder / rng.choice([path for path in ALL_OUTPUTS if not path.endswith(".json")])
    if path.exists():
        path.write_text(path.read_text() + "-")
        older(path)


def replace_result(small, rng):
    """The result of another process of the same run, with an old time: not to be measured again, but to be read."""
    run = rng.choice(RUNS)
    path = small.folder / OUTPUTS[f"measure {run}"][0]
    if path.exists() and f"measure {run}" not in small.stale_measurements():
        before = small.measured(run) + small.replaced[run]
        small.replaced[run] += "+"
        escaped = [text.replace('"', '\\"') for text in (before, small.measured(run) + small.replaced[run])]
        path.write_text(path.read_text().replace(f'"measured": "{escaped[0]}"', f'"measured": "{escaped[1]}"'))
        older(path)


def exchange_results(small, rng):
    """The result of one run in the place of the other's."""
    source, target = (small.folder / OUTPUTS[f"measure {run}"][0] for run in RUNS)
    if source.exists():
        shutil.copy2(source, target)


def touch(small, rng):
    paths = [path for path in small.folder.rglob("*") if not path.is_symlink() and ".snakemake" not in path.parts]
    for path in rng.sample(paths, rng.choice([1, len(paths)])):
        os.utime(path)


def copy_project(small, rng):
    small.copy(rng.choice(["-r", "-a"]))


def forget(small, rng):
    shutil.rmtree(small.folder / ".snakemake", ignore_errors=True)


def lose_a_record(small, rng):
    """Not a change of any output, so the outputs are damaged as well."""
    path = small.folder / "results/merged.txt"
    (path.parent / RECORDS_FILE).unlink(missing_ok=True)
    path.unlink(missing_ok=True)


CHANGES = [
    edit, edit, edit, remark, another_setting, another_variable, optional_module, hidden_module, delete, delete,
    delete_documents, tamper, tamper, replace_result, exchange_results, touch, copy_project, forget, lose_a_record,
]  # fmt: skip


@pytest.mark.parametrize("seed", range(SEQUENCES))
def test_snakemake_plans_what_a_clean_build_would_change(tmp_path, snakemake, seed):
    rng, small = random.Random(seed), SmallWorkflow(tmp_path / "s")
    small.run(snakemake)
    for number in range(LENGTH):
        change = rng.choice(CHANGES)
        change(small, rng)
        how = rng.choice([(), (), AS_MODULE])
        expected = small.would_change()
        assert small.planned(snakemake, *how) == with_readers(expected), f"change {number}, {change.__name__}, {how}"
        action = rng.random()
        if action < 0.1:
            small.touch(snakemake, *how)
            assert small.planned(snakemake) == with_readers(expected), f"--touch after change {number}"
        elif action < 0.25:
            small.run(snakemake, *how)
            assert small.would_change() == set(), f"run after change {number}"
    small.run(snakemake)
    assert small.would_change() == set()
    assert small.planned(snakemake) == small.planned(snakemake, *AS_MODULE) == set()
    left = {path.name for path in (small.folder / "results").rglob(".*")} - {LOCK_FILE}
    assert left == set()
