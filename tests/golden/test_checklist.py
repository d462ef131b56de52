"""The checklist of what the project offers: commands, options, columns and keys, each tried once.

It reads public things alone, so that it stays while what is behind them is replaced. What a module's own tests try,
such as options in tests/kernel_tables/test_command.py, is not repeated. The number in each row is that of the request
it comes from; `ours` is what nobody asked for and users have. What needs a run of a grid is in test_checklist_grid.py,
values of cells and captures, and findings of the planted ones, are in the other files here.

Not tried, since only a GPU does it (the captures and tables were made on an H200): what nsys, ncu and NCCL record,
energy by NVML, memory_snapshot.pickle, CUDA events. Recordings of scripts, blocks and compiled models are tried in
tests/kernel_tables/record.
"""

import csv
import gzip
import io
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import kernel_tables
from kernel_tables.__main__ import main

ROOT = Path(__file__).parents[2]
CAPTURES = ROOT / "tests" / "captures"
NAMES = {
    "tiny": "tiny_2025.3.1.sqlite.gz", "graph": "graph_replayed_2025.3.2.sqlite.gz", "host": "host_2025.3.1.sqlite.gz",
    "nccl": "nccl_2025.3.1.sqlite.gz", "recorded": "loader_and_graph_2025.3.1.sqlite.gz",
    "clean": "planted/clean.sqlite.gz", "sync": "planted/sync_in_step.sqlite.gz",
}  # fmt: skip
PROFILED = """
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function, schedule
model = nn.Sequential(nn.Embedding(50, 8), nn.Linear(8, 50))
optimizer = torch.optim.AdamW(model.parameters())
plan = schedule(wait=1, warmup=1, active=2)
with profile(activities=[ProfilerActivity.CPU], schedule=plan, with_stack=True, record_shapes=True) as profiler:
    for _ in range(4):
        tokens = torch.randint(50, (2, 4))
        with record_function("mine"):
            loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        profiler.step()
profiler.export_chrome_trace("trace.json.gz")
"""


def event(category: str, name: str, start_us: float, us: float, thread: int, **args) -> dict:
    return {"ph": "X", "cat": category, "name": name, "ts": start_us, "dur": us, "pid": 5, "tid": thread, "args": args}


SHAPES = [  # a kernel of a linear layer, as torch.profiler notes it with record_shapes=True on a GPU
    event("user_annotation", "ProfilerStep#1", 0, 100, 11),
    event("cpu_op", "aten::linear", 5, 40, 11, **{"Input Dims": [[4, 8], [16, 8]]}),
    event("cuda_runtime", "cudaLaunchKernel", 10, 5, 11, correlation=7),
    event("kernel", "ampere_sgemm_128x64_nn", 30, 20, 7, device=0, stream=7, correlation=7),
]


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, Path]:
    """Captures and traces by name, all in one folder that is the working directory of the commands."""
    folder = tmp_path_factory.mktemp("checklist")
    files = {name: CAPTURES / path for name, path in NAMES.items()}
    files |= {"folder": folder, "rules": folder / "rules.toml"}
    files |= {"trace": folder / "trace.json.gz", "shapes": folder / "shapes.json"}
    files["rules"].write_text('[[rule]]\ncode = "my_rule"\nclass = "gemm"\nshare = 0.0001\nadvice = "look at it"\n')
    files["shapes"].write_text(json.dumps({"traceEvents": SHAPES}))
    script = folder / "profiled.py"
    script.write_text(PROFILED)
    subprocess.run([sys.executable, script], cwd=folder, check=True, capture_output=True)
    return files


@pytest.fixture
def run(files, monkeypatch, capfdbinary):
    """A function that runs a command line with {names} of captures; returns status, standard output and error."""

    def run(line: str) -> tuple[int, str, str]:
        monkeypatch.chdir(files["folder"])
        capfdbinary.readouterr()
        try:
            status = main(shlex.split(line.format(**files)))
        except SystemExit as end:
            status = end.code or 0
        return status, *(text.decode() for text in capfdbinary.readouterr())

    return run


KERNELS = "range kernel class launches total_ns mean_ns min_ns max_ns std_ns"
RANGES = "range instances kernels gpu_time_ns memops memop_time_ns"
CLASSES = "class kernels launches total_ns share_of_gpu_time largest_kernel unknown_names"
FINDINGS = "code message abstained evidence where gain_ms gain_percent advice sure"
DIFF = "level name change before after launches_before launches_after ms_before ms_after ms_more ratio"
HOST = "process thread where source function calls time_ns own_ns samples estimated_ns launches us_per_launch"
STEPS = (
    "rank device step step_ns compute_ns exposed_communication_ns exposed_memory_ns idle_ns communication_ns"
    " overlapped_ns collectives bytes transfer_ns waiting_ns"
)
COLLECTIVES = "rank step number operation bytes duration_ns exposed_ns algorithm_gb_per_s bus_gb_per_s"
TABLES = [  # command, columns that its CSV has, values that some row has (column=value)
    # 000, 001: (a) to (e) of one program
    ("kernels {tiny} --under step", KERNELS, ["class=gemm", "range=step > forward"]),
    ("classes {tiny} --under forward", CLASSES, ["class=gemm", "class=elementwise/activation"]),  # of a phase
    ("ranges {tiny} --under step", RANGES, ["range=computing softmax", "range=optimizer"]),
    ("ranges {tiny} --tree", f"{RANGES} depth", ["range=measure > step > backward"]),
    # ours: replayed graphs, modules in the backward pass, captures of `record`
    ("ranges {graph} --tree", RANGES, ["range=measured > forward > GPT > h.0 > h.0.attn"]),
    ("ranges {recorded} --tree", RANGES, ["range=step > backward > Sequential"]),
    # 002 to 004: torch.profiler, with stacks and with shapes
    ("kernels {trace}", KERNELS, ["class=gemm"]),
    ("ranges {trace} --tree", RANGES, ["range=mine > Sequential > Linear", "range=backward > Sequential > Linear"]),
    ("classes {trace}", CLASSES, ["class=gemm"]),
    ("host {trace}", HOST, ["source=operator"]),
    ("communication {trace}", STEPS, ["rank=0"]),
    ("ranges {shapes} --tree", RANGES, ["range=step > aten::linear(4×8, 16×8)"]),
    # 002, 003, 004: what the host did, with OS runtime and Python samples, where nsys recorded them
    ("host {host}", HOST, ["source=cuda", "source=osrt", "source=python"]),
    # 003, 004: findings with gain and advice; custom rules
    ("diagnose {tiny} --rules {rules}", FINDINGS, ["code=my_rule", "advice=look at it"]),
    # 003: several GPUs, NCCL by rank and step, exposed and hidden
    ("communication {nccl} --step-name fsdp", STEPS, ["rank=0", "rank=1"]),
    ("communication {nccl} --step-name fsdp --collectives", COLLECTIVES, ["operation=all-gather", "bytes=16777216"]),
    ("ranges {nccl} --ranks", f"rank {RANGES}", ["rank=1"]),
    # 003: before and after
    ("diff {clean} {sync} --step-name step --all", DIFF, ["level=phase", "level=kernel", "change=same", "change=time"]),
]  # fmt: skip


@pytest.mark.parametrize(("line", "columns", "values"), TABLES, ids=[row[0] for row in TABLES])
def test_a_command_writes_its_columns_as_csv(run, line, columns, values):
    _, out, _ = run(f"{line} --format csv")
    table = csv.DictReader(io.StringIO(out))
    rows = list(table)
    assert set(columns.split()) <= set(table.fieldnames)
    for value in values:
        column, _, wanted = value.partition("=")
        found = {row[column] for row in rows}
        assert wanted in found or any(text.endswith(f" > {wanted}") for text in found), (value, found)


STATUSES = [
    ("diff {clean} {clean}", 0),
    ("check {tiny} --steps 3", 0),
    ("check {tiny} --steps 4", 1),
    ("--version", 0),
]


@pytest.mark.parametrize(("line", "status"), STATUSES, ids=[row[0] for row in STATUSES])
def test_a_command_ends_with_its_status(run, line, status):
    assert run(line)[0] == status


@pytest.mark.parametrize("capture", ["tiny", "recorded", "trace", "shapes"])
def test_a_capture_gives_a_page_without_a_network_and_a_timeline_for_perfetto(run, files, capture):  # 002 to 004
    assert run(f"report {{{capture}}} -o page.html")[0] == run(f"trace {{{capture}}} -o timeline.json.gz")[0] == 0
    page = (files["folder"] / "page.html").read_text()
    assert page.lower().startswith("<!doctype html>")
    assert not re.search(r"(src|href)=\"https?://", page) and "flame" in page
    with gzip.open(files["folder"] / "timeline.json.gz") as file:
        events = json.load(file)["traceEvents"]
    assert any(one["ph"] == "X" and " > " in one["args"].get("range", "") for one in events)


# --- in Python


def test_python_reads_what_the_commands_read(files):
    activity = "kind name class range start_ns end_ns duration_ns process thread device stream launch_ns"
    with kernel_tables.read(files["tiny"]) as profile:
        assert set(KERNELS.split()) == set(profile.kernels("step"))
        assert set(CLASSES.split()) == set(profile.classes("step"))
        assert {*RANGES.split(), "depth"} == set(profile.ranges("step", tree=True)) and profile.notes == []
        assert set(activity.split()) <= set(profile.activities())
        assert len(profile.activities()) == len(profile.enclosing("step"))
        assert len(profile.range_instances()) > 0 and profile.diagnose()
    names = "Profile recorded TraceError ImpossibleCapture NotConserved Finding __version__"
    assert all(hasattr(kernel_tables, name) for name in names.split())  # which the pages promise
    with pytest.raises(kernel_tables.TraceError):
        kernel_tables.read(files["rules"])


# --- grids: what is planned


SIZES = {"d_model": 32, "d_ff": 64, "num_layers": 8, "num_heads": 2}
PLAN = [  # product, which runs it has (in the order of its values), which results beside timing.json and capture.sqlite
    # 000, 001
    ({"context_lengths": [16, 32], "modes": ["forward", "forward_backward", "train_step"]},
     "ctx16_forward ctx16_forward_backward ctx16_train_step ctx32_forward ctx32_forward_backward ctx32_train_step", ""),
    # ours: precision, compile, checkpoint, batch
    ({"precisions": ["fp32", "tf32", "bf16", "fp16", "bf16-weights"]},
     "{} {}_tf32 {}_bf16 {}_fp16 {}_bf16-weights", ""),
    ({"compiles": [False, True, "attention"]}, "{} {}_compile-on {}_compile-attention", ""),
    ({"checkpoints": [0, 1, 2, "8-2"]}, "{} {}_checkpoint1 {}_checkpoint2 {}_checkpoint8-2", ""),
    ({"batch_sizes": [2, 8]}, "{}_bs2 {}_bs8", ""),
    ({"attentions": ["eager", "math", "flash", "efficient", "cudnn"]},  # 002
     "{} {}_math-attention {}_flash-attention {}_efficient-attention {}_cudnn-attention", ""),
    # 003: several GPUs, strong and weak scaling
    ({"batch_sizes": [8], "gpus": [2, 4], "parallels": ["naive", "ddp", "fsdp"], "optimizers": ["adamw"]},
     "{}_bs8_gpus2_naive {}_bs8_gpus2_ddp {}_bs8_gpus2_fsdp {}_bs8_gpus4_naive {}_bs8_gpus4_ddp {}_bs8_gpus4_fsdp", ""),
    ({"batch_sizes": [6], "optimizers": ["adamw", "fused"]}, "{}_bs6 {}_bs6_fused", ""),
    # 002 to 004: memory, energy, counters
    ({"context_lengths": [64], "stages": ["memory", "energy", "counters"]}, "ctx64_train_step",
     "memory.json energy.json counters.json"),
]  # fmt: skip
SETTINGS = {
    "models": {"nano": SIZES}, "batch_size": 4, "vocab_size": 100, "precision": "fp32", "seed": 1, "device": "cpu",
    "timing": {"processes": 2, "warmup_steps": 1, "measured_steps": 3},
    "capture": {"backend": "torch", "warmup_steps": 1, "measured_steps": 2, "nsys_options": ["--trace=cuda,nvtx,osrt"]},
    "memory": {"warmup_steps": 1, "measured_steps": 1},
    "energy": {"windows": 3, "window_s": 5}, "counters": {"runs": "nano_ctx32_*", "layers": 1},
    "operator": {"warmup_passes": 0, "measured_passes": 2},
    "kernel_classes": [{"class": "mine", "pattern": "gemm"}],
    "diagnosis_rules": [{"code": "my_rule", "class": "mine", "share": 0.01, "advice": "look at it"}],
    "environment": ["MY_VARIABLE"], "time_limit_s": 77, "formats": ["markdown", "latex", "typst"],
}  # fmt: skip
ANSWERS = "answers a_forward_time b_top_kernels c_other_kernels d_training_vs_inference e_attention time_lost"
ANSWERS += " f_precision g_compile h_attention i_memory j_checkpoint l_counters m_energy n_communication optimizer"


def snakemake(folder: Path, config: dict, *arguments: str, snakefile: Path = ROOT / "Snakefile") -> str:
    """What a dry run prints, in which each job is named with its files; fails if it fails."""
    (folder / "grid.yaml").write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "snakemake", "-n", "-s", snakefile, "--directory", folder, "--cores", "2"]
    command += ["--workflow-profile", "none", "--configfile", folder / "grid.yaml", "--", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def files_in(text: str) -> set[str]:
    return {path.rstrip(".") for path in re.findall(r"results/[\w./-]+", text)}


@pytest.fixture(scope="module")
def planned(tmp_path_factory) -> set[str]:
    """The files of a dry run of all products, with every key of the configuration."""
    base = {"models": ["nano"], "context_lengths": [16], "modes": ["train_step"]}
    config = SETTINGS | {"grid": "one", "grids": {"one": [base | product for product, *_ in PLAN]}}
    return files_in(snakemake(tmp_path_factory.mktemp("planned"), config, "all"))


@pytest.mark.parametrize(("product", "runs", "further"), PLAN, ids=[" ".join(row[0]) for row in PLAN])
def test_a_dimension_and_a_stage_are_planned(planned, product, runs, further):
    for name in runs.replace("{}", "ctx16_train_step").split():
        folder = f"results/runs/nano_{name}"
        wanted = {"timing.json", "capture.sqlite", "status.json", *further.split()}
        assert {f"{folder}/{file}" for file in wanted} <= planned
        assert f"results/processes/2/nano_{name}/timing.json" in planned  # timing.processes


def test_only_the_named_runs_are_planned_with_their_counters(planned):  # and no run more than the products have
    runs = {name for _, names, _ in PLAN for name in names.replace("{}", "ctx16_train_step").split()}
    assert {path.split("/")[2] for path in planned if path.endswith("/status.json")} == {f"nano_{run}" for run in runs}
    counted = {path.split("/")[2] for path in planned if path.endswith("/counters.json")}  # counters.runs
    modes = ("forward", "forward_backward", "train_step")
    assert counted == {"nano_ctx64_train_step", *(f"nano_ctx32_{mode}" for mode in modes)}


@pytest.mark.parametrize("name", ANSWERS.split())
def test_a_question_has_a_document_in_each_format(planned, name):
    assert {f"results/answers/{name}.{suffix}" for suffix in ("md", "tex", "typ")} <= planned
    assert {"results/report.html", "results/figures/phase_times.svg", "results/figures/phase_times.png"} <= planned


BASE = {"grid": "one", "grids": {"one": [{"models": ["tiny"], "context_lengths": [16], "modes": ["forward"]}]}}


def test_the_workflow_is_used_as_a_module(tmp_path):  # ours
    snakefile = tmp_path / "Snakefile"
    snakefile.write_text(
        f'configfile: "grid.yaml"\nmodule theirs:\n    snakefile: "{ROOT}/workflow/Snakefile"\n    config: config\n'
        "use rule * from theirs as theirs_*\n"
    )
    planned = files_in(snakemake(tmp_path, BASE, snakefile=snakefile))
    assert "results/runs/tiny_ctx16_forward/timing.json" in planned


def test_the_profile_of_slurm_is_there():  # ours
    profile = yaml.safe_load((ROOT / "profiles/slurm/config.yaml").read_text())
    assert profile["executor"] == "slurm"
