"""Only what a change invalidates is run again.

The tiny grid has been run once; every test changes one thing in a copy of that project and compares, name by name, the
jobs that Snakemake plans with those that ought to run.
"""

import json
import os
import shutil
from importlib.metadata import version

import pytest
import yaml

from tests.workflow.conftest import copy_sources

ONE, TWO = "alpha_ctx8_forward", "beta_ctx8_forward"
IN_BF16, IN_TWOS = ([f"{run}_{part}" for run in (ONE, TWO)] for part in ("bf16", "bs2"))
END = ["all"]
DOCUMENTS = ["summaries", "answers", "figures", "page", "dictionary", *END]
MERGE = ["merge", "complete", *DOCUMENTS]
TABLES = [f"tables_of_capture {ONE}", f"tables_of_capture {TWO}", f"tables_of_counters {ONE}", "timeline"]


def timings(*runs):
    return [f"timing {run}" for run in runs]


def captures(*runs):
    """Captures, the tables that are made from them, and what is of the first of them alone: the tables of its counters,
    which are joined to its capture, and the page's timeline."""
    of_every_run = [job for run in runs for job in (f"capture {run}", f"tables_of_capture {run}")]
    return [*of_every_run, f"tables_of_counters {runs[0]}", "timeline"]


def counters(run):
    """The counters of the run that the page shows."""
    return [f"counters {run}"]


def replaced(file, old, new):
    """A change: `old`, which must be there, becomes `new`."""

    def change(project):
        text = (project / file).read_text()
        assert old in text, f"{old!r} is not in {file}"
        (project / file).write_text(text.replace(old, new, 1))

    return change


def appended(file, text):
    def change(project):
        with (project / file).open("a") as stream:
            stream.write(text)

    return change


def edited(file):
    """A change of what a source does: a statement, a rule of kernels, or text."""
    by_suffix = {".py": "\nEDITED = 1\n", ".toml": "\nedited = 1\n", ".j2": "edited\n"}
    return appended(file, by_suffix[os.path.splitext(file)[1]])


def remark_everywhere(project):
    """A comment in every source."""
    for path in project.rglob("*"):
        if path.is_file() and "results" not in path.parts and path.suffix in (".py", ".smk", ".toml"):
            path.write_text(path.read_text() + "\n# a remark\n")


def config(old, new):
    return replaced("config.yaml", old, new)


def plan(snakemake, project, *arguments):
    planned = snakemake(project, "--dry-run", *arguments)
    assert planned.status == 0, planned.output
    return planned


def reordered_config(project):
    """The same configuration as another program would write it: keys sorted, flow style, no comments."""
    path = project / "config.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()), sort_keys=True, default_flow_style=True, indent=8))


def touch_everything(project):
    """Every file and folder gets a new time, in an order that has nothing to do with what is made from what."""
    for folder, _, files in os.walk(project):
        if ".snakemake" not in folder:
            for name in [*files, "."]:
                os.utime(os.path.join(folder, name))


NOTHING = {
    "nothing": lambda project: None,
    "a comment in config.yaml": appended("config.yaml", "# a remark\n"),
    "spacing in config.yaml": config("timing:\n  warmup_steps: 0\n", "timing:\n\n  warmup_steps:   0   \n"),
    "key order and style in config.yaml": reordered_config,
    "a model that the grid does not use": config(
        "models:\n  alpha:", "models:\n  spare: {d_model: 8, d_ff: 8, num_layers: 1, num_heads: 1}\n  alpha:"
    ),
    "the time limit": config("time_limit_s: 120", "time_limit_s: 60"),
    "the README": lambda project: (project / "README.md").write_text("Another text.\n"),
    "a touch of every file": touch_everything,
    "a comment in every source": remark_everywhere,
    "another docstring": replaced("profile_grid/figures/theme.py", '"""', '"""Other words. '),
}  # fmt: skip

CHANGED_CONFIG = {
    "one model's size": (
        config("alpha: {d_model: 16, d_ff: 32", "alpha: {d_model: 16, d_ff: 48"),
        ["plan", *timings(ONE), *captures(ONE), *counters(ONE), *MERGE],
    ),
    "a context length added": (
        config("context_lengths: [8]", "context_lengths: [8, 16]"),
        ["plan", *timings("alpha_ctx16_forward", "beta_ctx16_forward"),
         *captures("alpha_ctx16_forward", "beta_ctx16_forward"), *counters("alpha_ctx16_forward"), *MERGE],
    ),
    "a mode added": (
        config("modes: [forward]", "modes: [forward, train_step]"),
        ["plan", *timings("alpha_ctx8_train_step", "beta_ctx8_train_step"),
         *captures("alpha_ctx8_train_step", "beta_ctx8_train_step"), *counters("alpha_ctx8_train_step"), *MERGE],
    ),
    "a model removed": (config("models: [alpha, beta]", "models: [alpha]"), ["plan", *MERGE]),
    "measured steps of the timings": (
        config("timing:\n  warmup_steps: 0\n  measured_steps: 2", "timing:\n  warmup_steps: 0\n  measured_steps: 3"),
        ["plan", *timings(ONE, TWO), *MERGE],
    ),
    "warm-up steps of the timings": (
        config("timing:\n  warmup_steps: 0", "timing:\n  warmup_steps: 1"),
        # which have an answer then
        ["plan", *timings(ONE, TWO), *MERGE],
    ),
    "measured steps of the captures": (
        config("  warmup_steps: 0\n  measured_steps: 1", "  warmup_steps: 0\n  measured_steps: 2"),
        ["plan", *captures(ONE, TWO), *MERGE],
    ),
    "warm-up steps of the captures": (
        config("  warmup_steps: 0\n  measured_steps: 1", "  warmup_steps: 1\n  measured_steps: 1"),
        ["plan", *captures(ONE, TWO), *MERGE],
    ),
    "the profiler": (
        config("backend: auto", "backend: torch"),
        ["plan", "machine", *captures(ONE, TWO), *MERGE],
    ),
    "options of nsys": (
        config("nsys_options: []", "nsys_options: [--cuda-memory-usage=true]"),
        ["plan", *captures(ONE, TWO), *MERGE],
    ),
    "the seed": (
        config("seed: 0", "seed: 1"),
        ["plan", *timings(ONE, TWO), *captures(ONE, TWO), *counters(ONE), *MERGE],
    ),
    "a precision added": (
        config("modes: [forward]", "modes: [forward]\n      precisions: [fp32, bf16]"),
        ["plan", *timings(*IN_BF16), *captures(*IN_BF16)[:-2], *MERGE],  # those of the first are there
    ),
    "another batch size for all": (
        config("batch_size: 4", "batch_size: 2"),
        ["plan", *timings(*IN_TWOS), *captures(*IN_TWOS), *counters(IN_TWOS[0]), *MERGE],
    ),
    "counters of every run": (
        config("kernel_classes: []", 'kernel_classes: []\ncounters: {runs: "*"}'),
        ["plan", *counters(TWO), f"tables_of_counters {TWO}", *MERGE],
    ),
    "counters of no run": (
        config("kernel_classes: []", 'kernel_classes: []\ncounters: {runs: ""}'),
        ["plan", *MERGE],
    ),
    "a class of kernels": (
        config("kernel_classes: []", 'kernel_classes: [{class: gemm, pattern: "aten::bmm"}]'),
        [*TABLES, *MERGE],
    ),
}  # fmt: skip

CHANGED_SOURCES = {
    "cs336_model/model/transformer.py": [*timings(ONE, TWO), *captures(ONE, TWO), *counters(ONE), *MERGE],
    "cs336_model/program/benchmark.py": [*timings(ONE, TWO), *captures(ONE, TWO), *counters(ONE), *MERGE],
    "kernel_tables/kineto/trace.py": ["plan", *timings(ONE, TWO), *captures(ONE, TWO), *counters(ONE), *MERGE],
    "kernel_recorder/nsys_profile.py": [*captures(ONE, TWO), *MERGE],
    "kernel_tables/attribution/rule.py": ["plan", *TABLES, *MERGE],  # planning checks own rules of the diagnosis
    "kernel_tables/kernel_classes/class_rules.toml": [*TABLES, *MERGE],
    "profile_grid/stages/capture/step_tables.py": [*TABLES, *MERGE],
    "profile_grid/merging/merge.py": MERGE,
    "profile_grid/documents/documents.py": ["answers", "page", *END],
    "profile_grid/figures/theme.py": ["figures", "page", *END],
    "profile_grid/questions/a_forward_time/figure.py": ["figures", "page", *END],
    "profile_grid/documents/dictionary.py": ["dictionary", *END],
    "profile_grid/questions/b_top_kernels/document.py": ["answers", "page", *END],
    "profile_grid/questions/c_other_kernels/table.py": DOCUMENTS,
    "profile_grid/questions/b_top_kernels/definitions.md.j2": ["answers", *END],
    "profile_grid/documents/templates/macros.md.j2": ["answers", *END],
}


@pytest.mark.parametrize("change", NOTHING.values(), ids=NOTHING)
def test_what_no_result_depends_on_runs_nothing_again(project, snakemake, change):
    change(project)
    assert plan(snakemake, project).jobs == []


@pytest.mark.parametrize(("change", "expected"), CHANGED_CONFIG.values(), ids=CHANGED_CONFIG)
def test_a_change_of_the_configuration_runs_what_it_concerns(project, snakemake, change, expected):
    change(project)
    assert sorted(plan(snakemake, project).jobs) == sorted(expected)


@pytest.mark.parametrize(("file", "expected"), CHANGED_SOURCES.items(), ids=CHANGED_SOURCES)
def test_a_change_of_a_source_runs_what_is_made_with_it(project, snakemake, file, expected):
    edited(file)(project)
    assert sorted(plan(snakemake, project).jobs) == sorted(expected)


def test_another_checkout_of_the_same_commit_runs_nothing_again(project, snakemake, tmp_path):
    checkout = copy_sources(project, tmp_path / "another checkout")
    for moved in ("results", ".snakemake"):
        shutil.move(project / moved, checkout / moved)
    assert plan(snakemake, checkout).jobs == []


def test_a_change_that_is_taken_back_runs_nothing_again(project, snakemake):
    config("d_ff: 32", "d_ff: 48")(project)
    assert plan(snakemake, project).jobs != []
    config("d_ff: 48", "d_ff: 32")(project)
    assert plan(snakemake, project).jobs == []


@pytest.mark.parametrize("file", ["capture.sqlite", "capture.json"])
def test_a_capture_that_is_deleted_is_made_again_with_what_hangs_on_it(project, snakemake, file):
    (project / "results/runs" / ONE / file).unlink()
    assert sorted(plan(snakemake, project).jobs) == sorted([*captures(ONE), *MERGE])


def test_a_timing_that_is_deleted_is_made_again_without_its_capture(project, snakemake):
    (project / "results/runs" / ONE / "timing.json").unlink()
    # and the tables of its capture, in seconds: on a cluster they are one job with all that is measured of the run
    expected = {*timings(ONE), *captures(ONE), *MERGE} - {f"capture {ONE}", "timeline"}
    assert set(plan(snakemake, project).jobs) == expected


def test_the_source_of_a_model_of_ones_own_is_a_source_of_every_measurement(project, snakemake):
    (project / "their_model.py").write_text(
        "import their_layers\nfrom cs336_model.model.transformer import TransformerLM\n"
    )
    (project / "their_layers.py").write_text("")
    config("cs336_model.model:TransformerLM", "their_model:TransformerLM")(project)
    assert snakemake(project, "--cores", "2", "results/runs/alpha_ctx8_forward/timing.json").status == 0
    target = f"results/runs/{ONE}/timing.json"
    assert plan(snakemake, project, target).jobs == []
    (project / "their_layers.py").write_text("# a remark\n")
    assert plan(snakemake, project, target).jobs == []
    (project / "their_layers.py").write_text("LAYERS = 3\n")
    assert plan(snakemake, project, target).jobs == timings(ONE)


def test_a_run_that_is_removed_is_in_no_table_and_nothing_is_measured(project, snakemake):
    config("models: [alpha, beta]", "models: [alpha]")(project)
    run = snakemake(project, "--cores", "2", "results/tables/runs.csv", "results/answers/a_forward_time.md")
    assert run.status == 0, run.output
    assert sorted(run.jobs) == ["answers", "merge", "plan", "summaries"]
    for made in ("results/tables/runs.csv", "results/tables/timings.csv", "results/answers/a_forward_time.md"):
        text = (project / made).read_text()
        assert "alpha" in text
        assert "beta" not in text


def test_a_change_of_the_analysis_that_changes_no_table_is_run_once(project, snakemake):
    edited("kernel_tables/attribution/rule.py")(project)
    target = f"results/runs/{ONE}/status.json"
    assert snakemake(project, "--cores", "2", target).jobs == [f"tables_of_capture {ONE}"]
    assert plan(snakemake, project, target).jobs == []


def test_another_driver_or_nsys_runs_nothing_again_of_what_the_processor_measured(project, snakemake, tmp_path):
    for name in ("nsys", "nvidia-smi"):
        (tmp_path / name).write_text("#!/bin/sh\necho NVIDIA Nsight Systems version 2031.1.1.1-1v0\n")
        (tmp_path / name).chmod(0o755)
    planned = snakemake(project, "--dry-run", PATH=f"{tmp_path}:{os.environ['PATH']}", CUDA_VISIBLE_DEVICES="7")
    assert planned.jobs == []


def change_torch(result, **machine):
    """Lets a result be one of another PyTorch, on another machine."""
    record = json.loads(result.read_text())
    record["program"]["loaded_distributions"]["torch"] = "1.0.0"
    record["program"]["machine"] |= machine
    times = result.stat()
    result.write_text(json.dumps(record))
    os.utime(result, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_another_torch_runs_what_it_measures_again_on_the_kind_of_device_that_the_result_names(project, snakemake):
    one, two = (project / f"results/runs/{run}/timing.json" for run in (ONE, TWO))
    change_torch(two, device_name="Another CPU")
    assert f"timing {TWO}" not in plan(snakemake, project).jobs
    change_torch(one)
    planned = plan(snakemake, project)
    assert f"timing {ONE}" in planned.jobs
    assert (
        f"runs again, and maybe others: a version has changed: torch was 1.0.0 and is {version('torch')}"
        in planned.output
    )


@pytest.mark.parametrize("change", ["deleted", "changed"])
def test_another_look_at_the_machine_makes_no_measurement_stale(project, snakemake, change):
    looked_at = project / "results/machine.txt"
    if change == "deleted":
        looked_at.unlink()
    else:
        looked_at.write_text("another machine\n")
    assert plan(snakemake, project).jobs == {"deleted": ["machine", "all"], "changed": []}[change]


def test_no_fact_of_the_machine_is_a_parameter_of_any_job(project):
    machine = json.loads((project / f"results/runs/{ONE}/timing.json").read_text())["program"]["machine"]
    records = [json.loads(path.read_text()) for path in (project / ".snakemake/metadata").iterdir()]
    parameters = [text for record in records for text in record["params"]]
    assert any("num_heads" in text for text in parameters)
    for fact in ("device_name", "torch", "python"):
        assert not any(machine[fact] in text for text in parameters), fact
