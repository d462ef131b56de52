"""What runs again after a change, and what does not: the situations of docs/freshness.md, by Snakemake's commands.

A small grid is run once, on a CPU, from a copy of the project; each test changes a copy of that, and plans.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from workflow.freshness import command_for, explain_difference, strip_comments

ROOT = Path(__file__).parents[2]
MODEL, SCRIPT = "cs336_model/model.py", "workflow/scripts/merge.py"
TEMPLATE = "workflow/templates/a_forward_time.md.j2"
SIZES = {"d_model": 32, "d_ff": 64, "num_layers": 2, "num_heads": 2}
GRID = {
    "grid": "one", "models": {"nano": SIZES, "pico": SIZES | {"num_layers": 1}}, "device": "auto", "vocab_size": 100,
    "grids": {"one": [{"models": ["nano", "pico"], "context_lengths": [16], "modes": ["forward"], "batch_sizes": [2]}]},
    "timing": {"warmup_steps": 1, "measured_steps": 2}, "capture": {"warmup_steps": 1, "measured_steps": 2},
    "counters": {"runs": ""}, "environment": ["MINE"],
}  # fmt: skip
NANO, PICO = "nano_ctx16_forward_bs2", "pico_ctx16_forward_bs2"
EVERYTHING = {"timing": 2, "capture": 2}
MEASURING = {"timing", "timing_process", "capture", "memory", "energy", "counters", "attention"}


def start(folder: Path, *arguments: str, **environment: str) -> subprocess.Popen:
    """Snakemake of the project in `folder`, in a process group of its own."""
    command = [sys.executable, "-m", "snakemake", *(arguments or ["all"]), "--configfile", "grid.yaml"]
    command += ["--cores", "1"]
    environment = os.environ | {"MINE": "7", "PYTHONDONTWRITEBYTECODE": "1"} | environment
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=pipe, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def run(folder: Path, *arguments: str, status: int = 0, **environment: str) -> str:
    """What it prints. Fails if it ends with another status."""
    process = start(folder, *arguments, **environment)
    text = process.communicate()[0]
    assert process.returncode == status, text
    return text


def planned(folder: Path, **environment: str) -> dict[str, int]:
    """How many jobs of each rule a dry run plans."""
    table = re.search(r"^job +count\n-.*\n((?:\w+ +\d+\n)+)", run(folder, "-n", "all", **environment), re.MULTILINE)
    jobs = dict(line.split() for line in table[1].splitlines()) if table else {}
    return {rule: int(count) for rule, count in jobs.items() if rule not in ("all", "total")}


def measured(folder: Path, **environment: str) -> dict[str, int]:
    """How many measurements of each kind a dry run plans."""
    return {rule: count for rule, count in planned(folder, **environment).items() if rule in MEASURING}


def replace(path: Path, old: str, new: str) -> None:
    """Edits a file."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def change_grid(folder: Path, **changes) -> None:
    (folder / "grid.yaml").write_text(yaml.safe_dump(GRID | changes))


def change_model(folder: Path) -> None:
    with (folder / MODEL).open("a") as file:
        file.write("\nCHANGED = True\n")


def read_results(folder: Path) -> dict[Path, dict]:
    return {
        path: json.loads(path.read_text()) for path in folder.glob("results/runs/*/*.json") if path.stem != "status"
    }


def wait_until(condition, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "this took too long"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """The project, nothing measured yet."""
    folder = tmp_path_factory.mktemp("fresh") / "project"
    folder.mkdir()
    for name in ("cs336_model", "kernel_tables", "workflow", "profiles"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("Snakefile", "config.yaml"):
        shutil.copy2(ROOT / name, folder / name)
    change_grid(folder)
    return folder


@pytest.fixture(scope="module")
def finished(project) -> Path:
    """The project after a run of everything."""
    folder = project.with_name("finished")
    shutil.copytree(project, folder)
    run(folder)
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


def test_nothing_runs_again_for_what_decides_no_number(done):
    (done / MODEL).write_text((done / MODEL).read_text() + '\n# a comment\n"""A text that does nothing."""\n')
    change_grid(done, time_limit_s=77)
    times = {path: path.stat().st_mtime_ns for path in done.glob("results/plan/measurements.json")}
    assert planned(done, OTHER="8") == {}
    assert {path: path.stat().st_mtime_ns for path in times} == times


@pytest.mark.parametrize("has_times", [True, False], ids=["cp -a", "touch, cp -r"])
def test_copied_or_touched_results_are_not_measured_again(copied, has_times):
    if not has_times:
        for path in sorted(copied.rglob("*")):
            path.touch()
    assert planned(copied) == {} if has_times else measured(copied) == {}


def test_model_code_or_a_listed_variable_measures_everything(done):
    assert measured(done, MINE="8") == EVERYTHING
    change_model(done)
    assert measured(done) == EVERYTHING


def test_code_of_the_analysis_runs_its_rule_again_and_what_follows(copied):
    """Seen by content: with an old time, and without Snakemake's metadata."""
    times = (copied / TEMPLATE).stat()
    replace(copied / TEMPLATE, "# (a)", "# (a) Once more:")
    os.utime(copied / TEMPLATE, ns=(times.st_atime_ns, times.st_mtime_ns))
    plan = planned(copied)
    assert {"answers", "page"} <= plan.keys() and not {"merge", "figures", *MEASURING} & plan.keys()
    replace(copied / SCRIPT, "LOSS_TOLERANCE = 1e-3", "LOSS_TOLERANCE = 1e-4")
    plan = planned(copied)
    assert {"merge", "summaries", "answers", "page"} <= plan.keys() and "run_tables" not in plan
    replace(copied / "kernel_tables/class_rules.toml", "[", "# a rule\n[")
    plan = planned(copied)
    assert plan["run_tables"] == 2 and not MEASURING & plan.keys()


def test_rules_of_the_configuration_and_deleted_results_run_what_needs_them(done):
    change_grid(done, kernel_classes=[{"class": "mine", "pattern": "mm"}])
    plan = planned(done)
    assert plan["run_tables"] == 2 and not MEASURING & plan.keys()
    for file in ("timing.json", "capture.sqlite"):
        (done / f"results/runs/{NANO}/{file}").unlink()
    assert measured(done) == {"timing": 1, "capture": 1}
    shutil.rmtree(done / ".snakemake")
    assert measured(done) == {"timing": 1, "capture": 1}


def test_one_size_measures_the_runs_of_its_model_and_a_size_that_is_changed_back_nothing(done):
    change_grid(done, models={"nano": SIZES, "pico": SIZES | {"num_layers": 3}})
    plan = planned(done)
    assert {plan["timing"], plan["capture"], plan["run_tables"], plan["merge"]} == {1}
    change_grid(done)
    assert measured(done) == {}


def fake_torch(folder: Path, version: str, cuda: str | None = None) -> str:
    """A folder for PYTHONPATH in which planning finds this PyTorch."""
    (folder / "torch").mkdir(parents=True)
    (folder / "torch/__init__.py").write_text("raise ImportError('planning imports no torch')\n")
    (folder / "torch/version.py").write_text(f"__version__ = '{version}'\ncuda: str | None = {cuda!r}\n")
    return str(folder)


def fake_gpu(folder: Path, name: str) -> str:
    """PATH with an nvidia-smi that knows this GPU: planning asks it where /proc has no GPUs."""
    folder.mkdir()
    (folder / "nvidia-smi").write_text(f"#!/bin/sh\necho '{name}, 570.1'\n")
    (folder / "nvidia-smi").chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def set_machine(folder: Path, **versions) -> None:
    """Makes all results those of another machine."""
    for path, result in read_results(folder).items():
        result["key"] |= versions
        path.write_text(json.dumps(result))


def test_a_host_without_pytorch_measures_nothing(done, tmp_path):
    (tmp_path / "none/torch").mkdir(parents=True)
    (tmp_path / "none/torch/__init__.py").write_text("raise ImportError\n")
    (tmp_path / "none/torch/version.py").write_text("")
    assert planned(done, PYTHONPATH=str(tmp_path / "none")) == {}


def test_results_of_a_gpu_stand_where_no_gpu_or_only_a_cpu_build_of_pytorch_is(done, tmp_path):
    set_machine(done, gpu="NVIDIA H200", driver="570.1", torch="99.1+cu128")
    assert measured(done) == {}
    assert measured(done, PATH=fake_gpu(tmp_path / "bin", "NVIDIA A100")) == {}


def test_results_of_a_gpu_are_measured_again_on_another_kind_and_stand_on_the_same(done, tmp_path):
    set_machine(done, gpu="NVIDIA H200", driver="570.1", torch="99.1+cu128", nsys=None)
    here = {"PYTHONPATH": fake_torch(tmp_path / "torches", "99.1+cu128", "12.8")}
    assert measured(done, PATH=fake_gpu(tmp_path / "same", "NVIDIA H200"), **here) == {}
    assert measured(done, PATH=fake_gpu(tmp_path / "other", "NVIDIA A100"), **here) == EVERYTHING
    assert measured(done, CUDA_VISIBLE_DEVICES="", **here) == {}
    set_machine(done, gpu=None, driver=None)  # a GPU came to results of a processor
    assert measured(done, PATH=os.environ["PATH"], **here) == {}
    assert measured(done, PATH=f"{tmp_path / 'same'}{os.pathsep}{os.environ['PATH']}", **here) == EVERYTHING


def test_what_was_measured_again_for_its_versions_is_fresh_afterwards(done, tmp_path):
    set_machine(done, torch="0.1")  # another PyTorch measures everything
    assert measured(done) == EVERYTHING
    run(done, f"results/runs/{NANO}/timing.json")
    assert measured(done) == {"timing": 1, "capture": 2}
    result = json.loads((done / f"results/runs/{NANO}/timing.json").read_text())
    assert result["key"]["torch"] != "0.1"


def test_copied_results_and_edited_code_give_no_old_figure_but_the_command_that_measures_again(copied):
    answer = (copied / "results/answers/answers.md").read_text()
    change_model(copied)
    text = run(copied, status=1)
    assert "4 of 4 results" in text and "the measured code changed" in text
    command = re.search(r"snakemake --cores 1 all --forcerun .*", text)[0]
    assert all(f"results/runs/{NANO}/{stage}.json" in command for stage in ("timing", "capture"))
    assert (copied / "results/answers/answers.md").read_text() == answer  # of the results that are there
    words = command.split()[3:]
    run(copied, "results/tables/runs.csv", *words[words.index("--forcerun") :])
    assert measured(copied) == {}


def test_an_edit_while_a_run_is_measured_leaves_no_result(project, tmp_path):
    shutil.copytree(project, tmp_path / "project")
    target, log = f"results/runs/{NANO}/timing.json", tmp_path / f"project/logs/{NANO}/timing.log"
    change_grid(tmp_path / "project", timing={"warmup_steps": 1, "measured_steps": 3000})
    process = start(tmp_path / "project", target)
    wait_until(log.exists)
    change_model(tmp_path / "project")
    text = process.communicate()[0]
    assert process.returncode == 1 and "edited" in text and "run snakemake again" in text
    assert not (tmp_path / "project" / target).exists()


def test_kill_9_leaves_nothing_half_written_and_no_process_and_a_second_snakemake_ends(project, tmp_path):
    folder = tmp_path / "project"
    shutil.copytree(project, folder)
    change_grid(folder, timing={"warmup_steps": 1, "measured_steps": 100_000})
    process = start(folder, f"results/runs/{NANO}/timing.json")
    wait_until(lambda: (folder / f"logs/{NANO}/timing.log").exists() and processes_of(folder))
    assert "lock" in run(folder, f"results/runs/{NANO}/timing.json", status=1).lower()  # a second Snakemake ends
    process.kill()
    process.communicate()
    wait_until(lambda: not processes_of(folder))
    assert not read_results(folder)
    change_grid(folder)
    run(folder, "--unlock")
    run(folder, f"results/runs/{NANO}/timing.json")
    assert measured(folder) == {"timing": 1, "capture": 2}


def processes_of(folder: Path) -> list[int]:
    """The measured programs that run in a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if path.joinpath("cwd").resolve() == folder and b"cs336_model" in path.joinpath("cmdline").read_bytes():
                found.append(int(path.name))
        except OSError:
            continue
    return found


def test_results_of_the_last_release_are_one_clear_line(done):
    path = done / f"results/runs/{NANO}/timing.json"
    path.write_text(json.dumps({"format": 12, "status": "complete", "specification": {}}))
    text = run(done, "-n", status=1)
    line = next(line for line in text.splitlines() if "0.3" in line)
    assert f"results/runs/{NANO}/timing.json" in line and "move results/ away" in line


def test_documents_tables_and_figures_of_an_earlier_grid_are_gone(done):
    left = [done / f"results/{name}" for name in ("answers/f_precision.md", "answers/f_precision.tex")]
    left += [done / f"results/{name}" for name in ("tables/precision.csv", "figures/precision.svg")]
    for path in left:
        path.write_text("of an earlier grid")
    product = GRID["grids"]["one"][0] | {"models": ["nano"]}
    change_grid(done, grids={"one": [product]}, timing=GRID["timing"])
    run(done, "results/answers/answers.md", "results/tables/README.md", "results/figures/phase_times.svg")
    assert [path for path in left if path.exists()] == []
    assert (done / f"results/runs/{PICO}/timing.json").exists()  # no measurement is ever removed
    change_grid(done)
    assert measured(done) == {}


def test_a_job_on_another_host_takes_the_plan_as_it_is(done):
    plan = (done / "results/plan/measurements.json").read_bytes()
    change_model(done)
    run(done, "-n", "--target-jobs", f"timing:run={NANO}", "--mode", "remote")
    assert (done / "results/plan/measurements.json").read_bytes() == plan


def test_a_difference_and_the_command_are_said_in_words():
    few = [f"results/runs/{name}/timing.json" for name in "ba"]
    assert command_for(few).endswith(" --forcerun results/runs/a/timing.json results/runs/b/timing.json")
    many = [f"results/runs/{number}/{stage}.json" for number in range(9) for stage in ("timing", "capture")]
    many.append("results/processes/2/a/timing.json")
    assert command_for(many) == "snakemake --cores 1 all --forcerun capture timing timing_process"
    spec = {"stage": "timing", "device": "cpu", "backend": "auto", "batch_size": 4}
    key = {"spec": spec, "code": "a", "torch": "1", "gpu": "NVIDIA H200"}
    assert explain_difference(key, {"spec": spec, "code": "a"}) == ""
    other = {"spec": spec | {"batch_size": 8}, "code": "b", "torch": "2", "gpu": "NVIDIA H200"}
    said = "batch_size was 4, is 8; the measured code changed; PyTorch was 1, is 2"
    assert explain_difference(key, other) == said


def test_a_digest_of_code_is_the_same_in_every_version_of_python():
    """ast.dump is not: what it writes of empty lists and of parameters of types depends on the version."""
    code = (
        b'"""A text."""\nclass A:\n    """B."""\n    def f(self, *, a: int = 1) -> str:\n        return f"{a!r}"  # c\n'
    )
    assert hashlib.sha256(strip_comments("a.py", code)).hexdigest()[:12] == "fc99d9b1d396"
    assert strip_comments("a.py", code) == strip_comments("a.py", code.replace(b"# c", b"").replace(b"B.", b"other"))
