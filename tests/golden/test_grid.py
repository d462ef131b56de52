"""A grid of two small runs on a machine without a GPU, from its configuration to the page.

Times depend on the machine, and the number of operators on the version of PyTorch. Ranges and classes are frozen, and
sums are checked.
"""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]
FROZEN = Path(__file__).parent / "grid"
CONFIG = """\
grid: golden
grids:
  golden:
    - {models: [tiny], context_lengths: [32], modes: [forward, train_step]}
device: cpu
timing: {warmup_steps: 1, measured_steps: 2}
capture: {warmup_steps: 1, measured_steps: 2}
"""
FROZEN_WITH = "2.13."  # the version of PyTorch
RUNS = ["tiny_ctx32_forward", "tiny_ctx32_train_step"]
STEP = ["run", "step"]
MADE = [
    "report.html", "figures/phase_times.svg", "tables/README.md",
    *(f"answers/{name}.md" for name in ("answers", "a_forward_time", "b_top_kernels", "c_other_kernels",
                                        "d_training_vs_inference", "e_attention", "time_lost")),
]  # fmt: skip
pytestmark = pytest.mark.slow


def snakemake(folder: Path, *arguments: str) -> str:
    """What Snakemake prints in a folder."""
    command = [sys.executable, "-m", "snakemake", "--snakefile", ROOT / "Snakefile", "--configfile", "grid.yaml"]
    done = subprocess.run([*command, *arguments], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The folder in which the grid was run."""
    folder = tmp_path_factory.mktemp("grid")
    (folder / "grid.yaml").write_text(CONFIG)
    snakemake(folder, "--cores", "2", "all")
    return folder


def read_table(folder: Path, name: str) -> pd.DataFrame:
    return pd.read_csv(folder / "results" / "tables" / f"{name}.csv", keep_default_na=False)


def test_the_page_the_figures_and_the_documents_are_made(folder):
    made = {name: folder / "results" / name for name in MADE}
    assert [name for name, path in made.items() if not path.exists() or not path.stat().st_size] == []
    assert sorted(path.name for path in (folder / "results" / "runs").iterdir()) == RUNS
    assert (read_table(folder, "timings")["status"] == "complete").all()


@pytest.mark.parametrize(("name", "columns"), [("ranges", ["range", "instances"]), ("kernels", ["class", "launches"])])
def test_every_step_has_the_frozen_ranges_classes_and_launches(folder, name, columns):
    """Launches only with the PyTorch with which they were frozen."""
    frozen = pd.read_csv(FROZEN / f"{name}.csv", keep_default_na=False)
    keys = [*frozen.columns[:-1]]
    sums = read_table(folder, name).groupby(["step", *keys])[columns[1]].sum()
    columns = keys if name == "kernels" and not version("torch").startswith(FROZEN_WITH) else [*frozen.columns]
    for step in (0, 1):
        pd.testing.assert_frame_equal(sums.loc[step].reset_index()[columns], frozen[columns])


def test_kernels_add_up_to_their_phase_and_phases_to_their_step(folder):
    phases, kernels = read_table(folder, "phases"), read_table(folder, "kernels")
    is_step = phases["phase"] == "step"
    steps, phases = phases[is_step].set_index(STEP), phases[~is_step]
    assert len(steps) == 4 and (steps["kernels"] > 0).all()
    sums = ["kernels", "kernel_ns", "memops", "memop_ns"]
    pd.testing.assert_frame_equal(phases.groupby(STEP)[sums].sum(), steps[sums])
    assert (phases.groupby(STEP)["wall_ns"].sum() <= steps["wall_ns"]).all()
    phases = phases.set_index([*STEP, "phase"])
    found = kernels.groupby([*STEP, "phase"])[["launches", "total_ns"]].sum()
    found = found.reindex(phases.index, fill_value=0)  # the phase in which the host waits launches nothing
    assert (found["launches"] == phases["kernels"] + phases["memops"]).all()
    assert (found["total_ns"] == phases["kernel_ns"] + phases["memop_ns"]).all()
    whole = read_table(folder, "ranges").query("range == ''").set_index([*STEP, "phase"])
    assert (whole["gpu_time_ns"] == phases.loc[whole.index, "kernel_ns"]).all()


def test_nothing_is_planned_after_the_grid_was_run(folder):
    assert "Nothing to be done" in snakemake(folder, "-n")
