"""What runs again after a change, and what does not: the situations of docs/freshness.md.

Which results have another key is seen by planning in this process. What Snakemake makes of that is tried with a small
grid that is run once, on a CPU, from a copy of the project; each test changes a copy of that.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import yaml

from workflow import freshness
from workflow.grid import expand_grid, read_config

ROOT = Path(__file__).parents[2]
MODEL, TEMPLATE = "cs336_model/model.py", "workflow/templates/a_forward_time.md.j2"
SIZES = {"d_model": 32, "d_ff": 64, "num_layers": 2, "num_heads": 2}
GRID = {
    "grid": "one", "models": {"nano": SIZES, "pico": SIZES}, "device": "auto", "vocab_size": 100,
    "grids": {"one": [{"models": ["nano"], "context_lengths": [16], "modes": ["forward"], "batch_sizes": [2]}]},
    "timing": {"warmup_steps": 1, "measured_steps": 2, "processes": 1}, "environment": ["MINE"],
    "capture": {"warmup_steps": 1, "measured_steps": 2, "backend": "auto"},
    "counters": {"runs": "", "layers": 1, "metrics": [], "warmup_steps": 1, "measured_steps": 1},
}  # fmt: skip
BOTH = [{"models": ["nano", "pico"], "context_lengths": [16], "modes": ["forward"]}]
RUN, TARGET = "results/runs/nano_ctx16_forward_bs2", "results/answers/answers.md"
EVERYTHING = {"timing": 1, "capture": 1}
GPU = {"gpu": "NVIDIA H200", "driver": "570.1", "torch": "2.11+cu128", "nsys": None}
CPU = {"gpu": None, "driver": None, "torch": "2.11+cpu", "nsys": None}


# --- wanted keys


class Planning:
    """Plans a grid of two runs in a folder, with a copy of the measured code."""

    def __init__(self, folder: Path, monkeypatch) -> None:
        self.code, self.patch = folder / "code", monkeypatch
        for name in ("cs336_model", "kernel_tables"):
            shutil.copytree(ROOT / name, self.code / name, ignore=shutil.ignore_patterns("__pycache__"))
        monkeypatch.chdir(folder)
        monkeypatch.setattr(freshness, "ROOT", self.code)
        self.set_host(CPU)

    def set_host(self, host: dict, nsys: str | None = None) -> None:
        """Makes the versions of this host those of a key."""
        freshness.describe_host.cache_clear()
        gpus = ([host["gpu"]], host["driver"]) if host["gpu"] else ([], None)
        self.patch.setattr(freshness, "find_gpus", lambda: gpus)
        self.patch.setattr(freshness, "find_torch", lambda: host["torch"])
        self.patch.setattr(freshness, "ask_version", lambda program: nsys)

    def plan(self, **changes) -> dict[str, str]:
        values = yaml.safe_load((ROOT / "config.yaml").read_text()) | GRID | {"grids": {"one": BOTH}} | changes
        config = read_config(values)
        return freshness.plan_measurements(config, expand_grid(config))

    def store(self, plan: dict[str, str], **versions) -> None:
        """Writes results with these keys, as of the present host but for `versions`."""
        for path, key in plan.items():
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            stored = freshness.complete_key(msgspec.json.decode(key)) | versions
            Path(path).write_bytes(msgspec.json.encode({"key": stored}))


@pytest.fixture
def planning(tmp_path, monkeypatch):
    yield Planning(tmp_path, monkeypatch)
    freshness.describe_host.cache_clear()


def changed(before: dict[str, str], after: dict[str, str]) -> set[str]:
    """The results whose wanted key is another, as run and stage."""
    assert before.keys() == after.keys()
    return {f"{Path(path).parts[2][:4]} {Path(path).stem}" for path in before if before[path] != after[path]}


ALL = {f"{run} {stage}" for run in ("nano", "pico") for stage in EVERYTHING}
CAPTURES = {"nano capture", "pico capture"}


def test_a_key_changes_with_what_decides_a_number_and_with_nothing_else(planning, monkeypatch):
    plan = planning.plan()
    model = planning.code / MODEL
    model.write_text(model.read_text() + '\n# a comment\n"""A text that does nothing."""\n')
    monkeypatch.setenv("OTHER", "8")
    assert planning.plan(time_limit_s=77, kernel_classes=[{"class": "mine", "pattern": "mm"}]) == plan
    assert changed(plan, planning.plan(models={"nano": SIZES, "pico": SIZES | {"num_layers": 3}})) == {
        "pico timing", "pico capture"
    }  # fmt: skip
    assert changed(plan, planning.plan(capture=GRID["capture"] | {"measured_steps": 3})) == CAPTURES
    assert planning.plan() == plan  # what is changed back
    with (planning.code / "kernel_tables/publish.py").open("a") as file:
        file.write("\nCHANGED = True\n")
    assert changed(plan, planning.plan()) == CAPTURES
    monkeypatch.setenv("MINE", "8")
    assert changed(plan, planning.plan()) == ALL


def test_measured_code_and_listed_sources_change_every_key(planning):
    Path("mine.py").write_text("a = 1")
    program = {"program": {"sources": ["mine.py"]}}
    plan = planning.plan(**program)
    Path("mine.py").write_text("a = 2")
    assert changed(plan, edited := planning.plan(**program)) == ALL
    with (planning.code / MODEL).open("a") as file:
        file.write("\nCHANGED = True\n")
    assert changed(edited, planning.plan(**program)) == ALL


def test_results_stay_fresh_when_they_are_moved_into_the_folder_of_the_project(planning, monkeypatch):
    plan = planning.plan()
    monkeypatch.chdir(planning.code)
    assert planning.plan() == plan


HOSTS = [  # results of, on the host, with nsys, what is measured again
    (GPU, GPU, None, set()),
    (GPU, CPU, None, set()),  # a laptop, or a login node
    (GPU, GPU | {"gpu": "NVIDIA A100", "torch": "2.11+cpu"}, None, set()),
    (GPU, GPU | {"gpu": "NVIDIA A100"}, None, ALL),
    (GPU, GPU | {"driver": "580.1"}, None, ALL),
    (GPU, GPU, "2025.3.1", CAPTURES),
    (CPU, GPU, None, ALL),  # a GPU came
    (CPU, CPU | {"torch": "2.12+cpu"}, None, ALL),
    (CPU, CPU | {"torch": None}, None, set()),
]


@pytest.mark.parametrize(("of", "host", "nsys", "again"), HOSTS)
def test_versions_are_judged_where_a_result_could_be_measured_and_once(planning, of, host, nsys, again):
    planning.store(planning.plan(), **of)
    plan = planning.plan()
    planning.set_host(host, nsys)
    wanted = planning.plan()
    assert changed(plan, wanted) == again
    planning.store(wanted)
    assert planning.plan() == wanted  # what was measured again for its versions is fresh


def test_a_job_on_another_host_takes_the_plan_as_it_is(planning, monkeypatch):
    plan = planning.plan()
    monkeypatch.setattr(freshness, "IS_JOB", True)
    assert planning.plan(batch_size=8) == plan


def test_a_difference_and_the_command_are_said_in_words():
    many = [f"results/runs/{number}/{stage}.json" for number in range(9) for stage in ("timing", "capture")]
    command = freshness.command_for([*many, "results/processes/2/a/timing.json"])
    assert command == "snakemake --cores 1 all --forcerun capture timing timing_process"
    spec = {"stage": "timing", "device": "cpu", "backend": "auto", "batch_size": 4}
    key = {"spec": spec, "code": "a", "torch": "1", "gpu": "NVIDIA H200"}
    assert freshness.explain_difference(key, {"spec": spec, "code": "a"}) == ""
    other = {"spec": spec | {"batch_size": 8}, "code": "b", "torch": "2", "gpu": "NVIDIA H200"}
    said = "batch_size was 4, is 8; the measured code changed; torch was 1, is 2"
    assert freshness.explain_difference(key, other) == said


def test_a_digest_of_code_is_the_same_in_every_version_of_python():
    """ast.dump is not: what it writes of empty lists and of parameters of types depends on the version."""
    code = b'"""A text."""\nclass A:\n    """B."""\n    def f(self, *, a: int = 1) -> str:\n        return f"{a!r}"\n'
    assert freshness.hash_files({"a.py": freshness.strip_comments("a.py", code)})[:12] == "82015e4ff0ed"


# --- what Snakemake makes of them


def run(folder: Path, *arguments: str, status: int = 0) -> str:
    """What Snakemake of the project in `folder` prints. Fails if it ends with another status."""
    command = [sys.executable, "-m", "snakemake", *arguments, "--configfile", "grid.yaml", "--cores", "2"]
    environment = os.environ | {"MINE": "7"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def planned(folder: Path) -> dict[str, int]:
    """How many jobs of each rule a dry run plans."""
    table = re.search(r"^job +count\n-.*\n((?:\w+ +\d+\n)+)", run(folder, "-n", TARGET), re.MULTILINE)
    jobs = dict(line.split() for line in table[1].splitlines()) if table else {}
    return {rule: int(count) for rule, count in jobs.items() if rule != "total"}


def measured(folder: Path) -> dict[str, int]:
    """How many measurements of each kind a dry run plans."""
    return {rule: count for rule, count in planned(folder).items() if rule in EVERYTHING}


def replace(path: Path, old: str, new: str) -> None:
    """Edits a file, which keeps its time."""
    text, times = path.read_text(), path.stat()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """The project after its documents were made."""
    folder = tmp_path_factory.mktemp("fresh") / "project"
    for name in ("cs336_model", "kernel_tables", "workflow", "profiles"):
        shutil.copytree(ROOT / name, folder / name)
    for name in ("Snakefile", "config.yaml"):
        shutil.copy2(ROOT / name, folder / name)
    (folder / "grid.yaml").write_text(yaml.safe_dump(GRID))
    run(folder, TARGET)
    return folder


@pytest.fixture
def done(finished, tmp_path) -> Path:
    """A copy of the finished project, with all times and Snakemake's metadata."""
    shutil.copytree(finished, tmp_path / "project", symlinks=True)
    return tmp_path / "project"


@pytest.fixture
def copied(done) -> Path:
    """The same without Snakemake's metadata, as `cp -a` of results leaves it."""
    shutil.rmtree(done / ".snakemake")
    return done


def test_a_changed_key_measures_again_and_what_decides_no_number_runs_nothing(done):
    replace(done / MODEL, '"""', '"""Another text: ')
    (done / "grid.yaml").write_text(yaml.safe_dump(GRID | {"time_limit_s": 77}))
    assert planned(done) == {}
    replace(done / MODEL, "import", "CHANGED = True\nimport")
    assert measured(done) == EVERYTHING


def test_copied_touched_and_deleted_results(copied):
    assert planned(copied) == {}
    for path in sorted(copied.rglob("*")):
        path.touch()
    assert measured(copied) == {}
    for file in ("timing.json", "capture.json"):
        (copied / RUN / file).unlink()
    assert measured(copied) == EVERYTHING


def test_code_of_the_analysis_runs_its_rule_again_and_what_follows(copied):
    """Seen by content: with an old time, and without Snakemake's metadata."""
    replace(copied / TEMPLATE, "# (a)", "# (a) Once more:")
    assert planned(copied) == {"answers": 1}
    replace(copied / "workflow/scripts/merge.py", "LOSS_TOLERANCE = 1e-3", "LOSS_TOLERANCE = 1e-4")
    plan = planned(copied)
    assert {"merge", "summaries", "answers"} <= plan.keys() and not {"run_tables", *EVERYTHING} & plan.keys()
    replace(copied / "kernel_tables/class_rules.toml", "[", "# a rule\n[")
    plan = planned(copied)
    assert plan["run_tables"] == 1 and not EVERYTHING.keys() & plan.keys()


def test_copied_results_and_edited_code_give_no_old_figure_but_the_command_that_measures_again(copied):
    answer = (copied / TARGET).read_text()
    replace(copied / MODEL, "import", "CHANGED = True\nimport")
    text = run(copied, TARGET, status=1)
    assert "2 of 2 results" in text and "the measured code changed" in text
    assert (copied / TARGET).read_text() == answer  # of the results that are there
    command = re.search(r"snakemake --cores 1 all (--forcerun .*)", text)[1]
    assert command.split()[1:] == [f"{RUN}/capture.json", f"{RUN}/timing.json"]
    run(copied, "results/tables/README.md", *command.split())
    assert measured(copied) == {}
