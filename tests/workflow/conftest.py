"""Copies of this project whose tiny grid has been run, and what Snakemake plans in them."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FAKES = ROOT / "tests" / "fakes"
SOURCES = (
    "Snakefile",
    "config.yaml",
    "pyproject.toml",
    "profiles",
    "envs",
    "workflow",
    "cs336_model",
    "kernel_recorder",
    "kernel_tables",
    "profile_grid",
    "range_marks",
)
CANARY = "canary7x31q"
TINY_GRID = """\
grid: test
grids:
  test:
    - models: [alpha, beta]
      context_lengths: [8]
      modes: [forward]
models:
  alpha: {d_model: 16, d_ff: 32, num_layers: 1, num_heads: 2}
  beta: {d_model: 32, d_ff: 32, num_layers: 1, num_heads: 2}
batch_size: 4
vocab_size: 50
precision: fp32
seed: 0
device: cpu
program:
  constructor: cs336_model.model:TransformerLM
timing:
  warmup_steps: 0
  measured_steps: 2
capture:
  backend: auto
  warmup_steps: 0
  measured_steps: 1
  nsys_options: []
time_limit_s: 120
kernel_classes: []
"""
FEW_FIGURES = """
import shutil
from pathlib import Path
from workflow.scripts import real_figures

def main(*, tables: Path, output: Path, figures: list[str]) -> None:
    drawn = [name for name in figures if name in {figures!r}]
    for name in set(figures) - set(drawn):
        for suffix in ("svg", "png"):
            target = output / f"{{name}}.{{suffix}}"
            shutil.copyfile(Path({others!r}, target.name), target) if {others!r} else target.touch()
    if drawn:
        real_figures.main(tables=tables, output=output, figures=drawn)
"""


@dataclass(frozen=True)
class Planned:
    """What Snakemake did, or would do: exit status, what it printed, the jobs (rule and wildcards), their inputs."""

    status: int
    output: str
    jobs: list[str]
    inputs: dict[str, list[str]]


class Planner:
    """Snakemake in a process of its own, asked about one folder after another."""

    def __init__(self, scratch: Path):
        self.scratch = scratch
        command = [sys.executable, "-m", "tests.workflow.planner_process"]
        plain = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=plain, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def __call__(self, folder: Path, *arguments: str, **environment: str) -> Planned:
        request = {"folder": str(folder), "arguments": arguments, "environment": environment}
        request |= {"scratch": str(self.scratch)}
        print(json.dumps(request), file=self.process.stdin)
        return Planned(**json.loads(self.process.stdout.readline()))

    def close(self) -> None:
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


@pytest.fixture(autouse=True)
def threads_as_users_have_them(monkeypatch):
    """Results record the number of threads that conftest.py sets."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


@pytest.fixture(scope="session")
def snakemake(tmp_path_factory):
    """Runs Snakemake: `snakemake(folder, "--dry-run", ..., PATH=...)`."""
    planner = Planner(tmp_path_factory.mktemp("planner"))
    yield planner
    planner.close()


def copy_sources(source: Path, target: Path) -> Path:
    """A copy of a project's sources, with the times of a fresh checkout."""
    ignored = shutil.ignore_patterns("__pycache__", ".snakemake")
    target.mkdir()
    for name in SOURCES:
        if (source / name).is_dir():
            shutil.copytree(source / name, target / name, ignore=ignored, copy_function=shutil.copyfile)
        else:
            shutil.copyfile(source / name, target / name)
    return target


def draw_only(folder: Path, *figures: str, others: Path | None = None) -> None:
    """Leaves all other figures of a project empty, or copies them from the folder `others`: drawing takes half of a
    grid's time and has tests of its own."""
    script = folder / "workflow" / "scripts" / "figures.py"
    script.rename(script.with_name("real_figures.py"))
    script.write_text(FEW_FIGURES.format(figures=figures, others=str(others or "")))


@pytest.fixture(scope="session")
def first_run(tmp_path_factory, snakemake) -> tuple[Path, Planned]:
    """A project whose tiny grid has been run to its end, and that run: one for all workers, since it takes long."""
    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared
    said = shared / "first_run.json"
    with (shared / "first_run.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not said.exists():
            folder = copy_sources(ROOT, shared / f"finished-{CANARY}")
            said.write_text(json.dumps([str(folder), asdict(_first_run(folder, snakemake))]))
    folder, run = json.loads(said.read_text())
    assert run["status"] == 0, run["output"]
    return Path(folder), Planned(**run)


def _first_run(folder: Path, snakemake: Planner) -> Planned:
    """The canary of tests/workflow/test_leaks.py is in its path, its environment and another process meanwhile."""
    (folder / "config.yaml").write_text(TINY_GRID)
    with subprocess.Popen(["sh", "-c", "read line", CANARY], stdin=subprocess.PIPE) as other:
        # without the profile nothing in Snakemake keeps measurements apart: their leases have to
        run = snakemake(
            folder,
            "--workflow-profile",
            "none",
            "--max-checksum-file-size",
            str(2**34),
            "--cores",
            "3",
            SECRET_TOKEN=CANARY,
        )
        other.communicate(b"\n")
    return run


@pytest.fixture(scope="session")
def finished_project(first_run) -> Path:
    """A project whose tiny grid has been run to its end. Tests work on copies of it."""
    return first_run[0]


@pytest.fixture
def project(finished_project, tmp_path) -> Path:
    """A copy of the finished project, times of the files included."""
    return Path(shutil.copytree(finished_project, tmp_path / "project", symlinks=True))


def write_config(folder, **changes):
    """The tiny grid with three models at one context length and mode, and top-level keys changed."""
    config = yaml.safe_load(TINY_GRID)
    sizes = {"d_ff": 32, "num_layers": 1, "num_heads": 2}
    config["models"] = {name: {"d_model": d, **sizes} for name, d in (("one", 16), ("two", 32), ("three", 48))}
    product = {"models": list(config["models"]), "context_lengths": [8], "modes": ["forward"]}
    (folder / "config.yaml").write_text(yaml.safe_dump(config | {"grids": {"test": [product]}} | changes))


@pytest.fixture
def fake_project(tmp_path):
    """A project in which the fake program stands for the benchmark."""
    folder = copy_sources(ROOT, tmp_path / "project")
    write_config(folder)
    shutil.copyfile(FAKES / "fake_program.py", folder / "cs336_model" / "program" / "benchmark.py")
    for name in ("pid", "runs"):
        (folder / name).touch()
    return folder


@pytest.fixture
def in_mounts():
    """A function that runs a shell script with mounts of its own, which end with it."""
    way = ["unshare", "--mount"] + ([] if os.geteuid() == 0 else ["--user", "--map-root-user"])
    tried = subprocess.run([*way, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False)
    if tried.returncode:
        pytest.skip(f"this system permits no mounts: {tried.stderr.decode().strip()}")
    return lambda script, folder: subprocess.run(
        [*way, "sh", "-c", script], cwd=folder, capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": str(folder)},
    )  # fmt: skip
