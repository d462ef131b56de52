"""The checklist of what runs of a grid make: files, columns, status, documents, figures, page, and what keys do.

Three small grids are measured on a CPU and only files are read that a user reads. test_checklist.py has the rest, and
says what neither tries. Times depend on the machine, and the number of operators on the version of PyTorch; ranges and
classes of a forward pass and a training step are frozen, and sums are checked. A fake nsys stands for the real one: it
runs the program, and gives a capture from an H200.
"""

import gzip
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from importlib.metadata import version
from pathlib import Path

import pandas as pd
import pytest
import yaml

ROOT = Path(__file__).parents[2]
CAPTURE = ROOT / "tests" / "captures" / "tiny_2025.3.1.sqlite.gz"
FROZEN = Path(__file__).parent / "grid"
FROZEN_WITH = "2.13."  # the version of PyTorch
SETTINGS = {
    "grid": "one", "device": "cpu", "time_limit_s": 300, "timing": {"warmup_steps": 1, "measured_steps": 2},
    "capture": {"warmup_steps": 1, "measured_steps": 2},
}  # fmt: skip
STEP, FORWARD, DDP = "tiny_ctx32_train_step", "tiny_ctx32_forward", "tiny_ctx32_train_step_gpus2_ddp"
OWN = "mine_ctx16_train_step_bs2"
SECOND = f"processes/2/{OWN}/timing.json"
MODEL = """
from dataclasses import dataclass
from torch import nn

@dataclass
class Config:
    vocab: int
    width: int

def rotate(x):
    return x.roll(1, -1)

def broken(x):
    raise RuntimeError("this function is replaced")

class LM(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embedding, self.head = nn.Embedding(config.vocab, config.width), nn.Linear(config.width, config.vocab)

    def forward(self, tokens):
        return self.head(broken(rotate(self.embedding(tokens))))
"""


def snakemake(folder: Path, *arguments: str, path: Path | None = None) -> str:
    """What Snakemake prints; raises if it fails."""
    environment = os.environ | {"MY_VARIABLE": "7"}
    if path:
        environment["PATH"] = f"{path}{os.pathsep}{environment['PATH']}"
    command = [sys.executable, "-m", "snakemake", "-s", ROOT / "Snakefile", "--directory", folder, *arguments]
    command += ["--configfile", folder / "grid.yaml", "--cores", "2"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def write_grid(folder: Path, *products: dict, **settings) -> Path:
    (folder / "grid.yaml").write_text(yaml.safe_dump(SETTINGS | settings | {"grids": {"one": list(products)}}))
    return folder


@pytest.fixture(scope="module")
def measured(tmp_path_factory) -> Path:
    """The results of three runs: with all stages, a forward pass, and two processes with DDP over Gloo."""
    base = {"models": ["tiny"], "context_lengths": [32], "modes": ["train_step"]}
    folder = write_grid(
        tmp_path_factory.mktemp("measured"),
        base | {"stages": ["memory", "energy", "counters"]},
        base | {"modes": ["forward"]},
        base | {"gpus": [2], "parallels": ["ddp"]},
    )
    snakemake(folder, "results/answers/answers.md", "results/report.html", "results/tables/README.md")
    return folder


@pytest.fixture(scope="module")
def own(tmp_path_factory) -> Path:
    """The results of a run of one's own program, captured under nsys, and timed by two processes."""
    folder = write_grid(
        tmp_path_factory.mktemp("own"),
        {"models": ["mine"], "context_lengths": [16], "modes": ["train_step"]},
        models={"mine": {"width": 8}}, vocab_size=100, batch_size=2,
        kernel_classes=[{"class": "my-class", "pattern": "gemm"}],
        diagnosis_rules=[{"code": "my_rule", "kernel": "gemm", "share": 0.0001, "advice": "look at it"}],
        program={
            "constructor": "my_model:LM", "config": "my_model:Config",
            "arguments": {"vocab": "$vocab_size", "width": "$width"}, "annotate": {"turn": "my_model:rotate"},
            "replace": {"my_model:broken": "my_layers:quick"}, "sources": ["my_layers.py"],
        },
        timing={"warmup_steps": 1, "measured_steps": 3, "processes": 2},
        capture={
            "backend": "nsys", "measured_steps": 3, "nsys_options": ["--gpu-metrics-devices=all"], "keep_report": True,
        },
        environment=["MY_VARIABLE"],
    )  # fmt: skip
    (folder / "my_model.py").write_text(MODEL)
    (folder / "my_layers.py").write_text(
        "import os\nassert os.environ['MY_VARIABLE'] == '7'\ndef quick(x):\n    return x.tanh()\n"
    )
    (folder / "bin").mkdir()
    shutil.copy(ROOT / "tests/fakes/nsys", folder / "bin")
    (folder / "bin/report").write_bytes(gzip.decompress(CAPTURE.read_bytes()))
    files = [f"results/{place}" for place in (f"runs/{OWN}/status.json", f"runs/{OWN}/timing.json", SECOND)]
    snakemake(folder, *files, path=folder / "bin")
    return folder


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> Path:
    """The results of attention alone, in all formats."""
    product = {"program": "attention", "head_dims": [8], "context_lengths": [8, 16], "batch_sizes": [2]}
    product |= {"attentions": ["eager", "mine:attend"], "precisions": ["bf16"]}
    settings = {"operator": {"warmup_passes": 0, "measured_passes": 2}}
    folder = write_grid(tmp_path_factory.mktemp("alone"), product, formats=["markdown", "latex", "typst"], **settings)
    (folder / "mine.py").write_text("from torch.nn.functional import scaled_dot_product_attention as attend\n")
    documents = [f"results/answers/answers.{suffix}" for suffix in ("md", "tex", "typ")]
    snakemake(folder, *documents, "results/figures/attention_sweep.svg")
    return folder


RUN_TABLES = {  # of one run, and columns that a user relies on
    "kernels": "step phase range kernel class launches total_ns mean_ns min_ns max_ns",  # 000, 001
    "phases": "step phase wall_ns gpu_span_ns gpu_busy_ns kernel_ns kernels memop_ns memops",
    "ranges": "step phase range instances wall_ns gpu_time_ns kernels memop_time_ns memops",
    "findings": "code abstained gain_ms gain_percent sure message advice evidence",  # 003, 004
    # 002 to 004: memory by category, by part, over time
    "memory_phases": "step phase category bytes",
    "memory_activations": "part bytes allocations",
    "memory_timeline": "moment ms phase parameters_bytes gradients_bytes optimizer_state_bytes live_bytes",
    "memory_totals": "requested_peak_bytes allocated_peak_bytes reserved_peak_bytes",
}  # fmt: skip


@pytest.mark.parametrize("name", RUN_TABLES)
def test_a_run_has_its_tables(measured, name):
    table = pd.read_csv(measured / f"results/runs/{STEP}/{name}.csv")
    assert set(RUN_TABLES[name].split()) <= set(table.columns) and len(table)


def test_a_kernel_has_the_class_and_a_finding_the_rule_of_the_configuration(own):
    folder = own / f"results/runs/{OWN}"
    assert "my-class" in set(pd.read_csv(folder / "kernels.csv")["class"])  # kernel_classes
    assert pd.read_csv(folder / "findings.csv").set_index("code")["advice"]["my_rule"] == "look at it"


def test_kernels_are_in_the_parts_of_the_model_in_both_passes(measured):
    kernels, phases = (pd.read_csv(measured / f"results/runs/{STEP}/{name}.csv") for name in ("kernels", "phases"))
    assert set(kernels["step"]) == {0, 1} and set(phases["phase"]) >= {"forward", "loss", "backward", "optimizer"}
    assert kernels["range"][kernels["phase"] == "backward"].str.contains("softmax").any()  # ours: backward by part
    # ours: conservation to the nanosecond; the phase `step` is all of them
    assert kernels["total_ns"].sum() == phases[phases["phase"] == "step"]["kernel_ns"].sum()


STATUSES = [  # what a machine without a GPU says (000)
    (STEP, "timing", "complete"), (STEP, "capture", "complete"), (STEP, "memory", "complete"),
    (STEP, "counters", "unsupported"), (STEP, "energy", "unsupported"), (FORWARD, "timing", "complete"),
    (DDP, "timing", "complete"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "stage", "status"), STATUSES)
def test_a_measurement_says_how_it_ended(measured, name, stage, status):
    result = json.loads((measured / f"results/runs/{name}/{stage}.json").read_text())
    assert result["status"] == status and bool(result["reason"]) == (status == "unsupported")
    runs = pd.read_csv(measured / "results/tables/runs.csv").set_index("run")
    assert runs[f"{stage}_status"][name] == status
    assert json.loads((measured / f"results/runs/{name}/status.json").read_text())["status"] == "complete"


def ask(path: Path, query: str) -> list[tuple]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute(query).fetchall()


def test_a_capture_is_an_export_for_ones_own_queries(measured):  # 000, 003
    capture = measured / f"results/runs/{STEP}/capture.sqlite"
    launches = (
        "SELECT COUNT(*) FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.demangledName WHERE s.value"
    )
    assert ask(capture, f"{launches} = 'aten::mul'")[0][0] > 0
    assert ask(capture, "SELECT COUNT(*) FROM NVTX_EVENTS WHERE text = 'step'")[0][0] >= 2
    assert (measured / f"results/runs/{DDP}/capture_rank1.sqlite").exists()


DIMENSIONS = "run model context_length mode precision batch_size compile attention checkpoint gpus parallel optimizer"
TABLES = {  # merged over all runs, and columns that a user relies on
    "runs": "num_layers d_model parameters reason torch device_name peak_allocated_bytes oom_requested_bytes loss",
    "timings": "phase n mean_ms std_ms min_ms max_ms processes",  # 000, 003: timing CSV
    "steps": "phase step ms",
    "kernels": RUN_TABLES["kernels"], "phases": RUN_TABLES["phases"], "ranges": RUN_TABLES["ranges"],
    "forward_time": "forward_wall_ms forward_gpu_busy_ms unprofiled_step_ms matches_python idle_share",  # (a)
    "top_kernels": "scope rank kernel class gpu_time_ms invocations share",  # (b)
    "forward_parts": "part gpu_time_ms share",  # (c)
    "class_shares": "phase class gpu_time_ms invocations share", "training_parts": "pass part gpu_time_ms share",  # (d)
    "attention": "part gpu_time_ms flops_per_layer flop_per_s runtime_to_matmuls flops_to_matmuls",  # (e)
    "attention_backward": "part gpu_time_ms flops_per_layer",
    "time_lost": "code gain_ms gain_percent sure message advice",
    "memory_peak": "category bytes peak_bytes share", "memory_activations": "part bytes",  # (i)
    "memory_timeline": RUN_TABLES["memory_timeline"],
    # (l): throughput, occupancy with its limiter, stalls, DRAM and L2 bytes, roofline; no rows without a GPU
    "counters": "kernel occupancy limited_by stall dram_bytes l2_bytes flops flops_per_byte compute_share memory_share",
    "counter_kernels": "kernel gpu_time_ms flop_per_s dram_bytes_per_s occupancy limited_by stall verdict",
    "energy": "joules_per_step joules_per_token power_w idle_power_w tflops_per_watt",  # (m)
    # (n): NCCL by rank and step, exposed and hidden; scaling; steps without communication
    "communication_steps": "rank step_ms compute_ms exposed_communication_ms idle_ms waiting_ms bytes overlap",
    "communication_times": "mean_ms without_mean_ms cost_ms", "communication_scaling": "kind speed_up efficiency",
}  # fmt: skip
WITHOUT_ROWS = ("counters", "counter_kernels", "energy")  # here


@pytest.mark.parametrize("name", TABLES)
def test_a_merged_table_has_its_columns_and_a_dictionary(measured, name):
    folder = measured / "results/tables"
    table = pd.read_csv(folder / f"{name}.csv")
    assert {*DIMENSIONS.split(), *TABLES[name].split()} <= set(table.columns)
    assert len(table) or name in WITHOUT_ROWS
    section = re.search(rf"\n## {name}\n(.*?)(\n## |$)", (folder / "README.md").read_text(), re.DOTALL)[1]
    assert all(f"`{column}`" in section for column in TABLES[name].split())


DOCUMENTS = "answers a_forward_time b_top_kernels c_other_kernels d_training_vs_inference e_attention i_memory"
DOCUMENTS += " l_counters m_energy n_communication time_lost"


def test_a_question_has_a_document_that_names_a_run_and_a_figure_is_drawn_twice(measured):
    for name in DOCUMENTS.split():
        text = (measured / f"results/answers/{name}.md").read_text()
        assert text.startswith("# ") and "tiny" in text
    for name in ("phase_times", "class_shares", "top_kernels", "attention", "memory_timeline", "scaling"):
        svg, png = (measured / f"results/figures/{name}.{suffix}" for suffix in ("svg", "png"))
        assert "<svg" in svg.read_text() and png.read_bytes().startswith(b"\x89PNG")


def test_the_page_needs_no_network_and_has_figures_tables_and_a_flame_graph(measured):
    page = (measured / "results/report.html").read_text()
    assert not re.search(r"(src|href)=\"https?://[^\"]*\.(js|css)\"", page)
    assert all(word in page for word in ("phase_times", "top_kernels", "flame", STEP))


def test_nothing_private_is_published(measured):  # ours
    host = os.uname().nodename
    for path in (path for path in (measured / "results").rglob("*") if path.is_file()):
        text = path.read_bytes()
        assert str(measured).encode() not in text, path
        assert len(host) < 5 or host.encode() not in text, path


def test_two_results_are_compared_and_the_machine_is_described(measured):  # 003; ours
    shutil.copytree(measured / "results", measured / "before", symlinks=True)
    said = snakemake(measured, "compare", "doctor", "--config", "before=before", "after=results", "fail_on=changed")
    comparison = (measured / "results/comparison/comparison.md").read_text()
    assert "3 runs" in comparison and "processes: 6" in comparison
    assert all(re.search(rf"^\w+ +{word} ", said, re.MULTILINE) for word in ("GPU", "torch", "nsys", "ncu", "time"))


def test_ones_own_program_is_measured_with_its_functions_annotated_and_replaced(own):
    """`replace` and `environment`: else the program fails; `timing.processes` and `measured_steps`."""
    for path in (f"results/runs/{OWN}/timing.json", f"results/{SECOND}"):
        timing = json.loads((own / path).read_text())
        assert timing["status"] == "complete" and len(timing["step_seconds"]) == 3
    assert ask(own / f"results/runs/{OWN}/capture.sqlite", "SELECT COUNT(*) FROM NVTX_EVENTS")[0][0]


def test_nsys_is_given_the_options_and_its_reports_stand_beside_the_run(own):  # 000, 003
    assert "--gpu-metrics-devices=all" in (own / "bin/profiles").read_text()
    folder = own / f"results/runs/{OWN}"
    reports = {"kernel_summary": "cuda_gpu_kern_sum", "nvtx_summary": "nvtx_sum", "api_summary": "cuda_api_sum"}
    for name, of_nsys in reports.items():
        assert (folder / f"reports/{name}.csv").read_text() == f"Time (%),Name\n100.0,{of_nsys}\n"
    status = json.loads((folder / "status.json").read_text())
    assert status["status"] == "complete" and set(pd.read_csv(folder / "ranges.csv")["range"])
    assert (folder / "capture.nsys-rep").exists()  # for the GUI; kept by one key


def test_attention_alone_has_times_memory_and_errors_a_figure_and_documents_in_all_formats(alone):  # 002
    table = pd.read_csv(alone / "results/tables/attention_sweep.csv")
    wanted = "head_dim context_length precision attention status reason passes forward_ms backward_ms peak_bytes"
    assert set(wanted.split()) <= set(table.columns) and len(table) == 4 and set(table["status"]) == {"complete"}
    assert table[["output_error", "gradient_error"]].max(axis=None) < 0.1
    assert (alone / "results/figures/attention_sweep.svg").exists()
    folder = alone / "results/answers"
    assert {path.suffix for path in folder.glob("answers.*")} == {".md", ".tex", ".typ"}
    assert "\\begin{document}" in (folder / "answers.tex").read_text() and "#" in (folder / "answers.typ").read_text()


@pytest.mark.parametrize(("name", "columns"), [("ranges", ["range", "instances"]), ("kernels", ["class", "launches"])])
def test_every_step_has_the_frozen_ranges_classes_and_launches(measured, name, columns):
    """Of the runs on one device; launches only with the PyTorch with which they were frozen."""
    table = pd.read_csv(measured / f"results/tables/{name}.csv", keep_default_na=False)
    frozen = pd.read_csv(FROZEN / f"{name}.csv", keep_default_na=False)
    keys = [*frozen.columns[:-1]]
    sums = table[table["run"].isin([STEP, FORWARD])].groupby(["step", *keys])[columns[1]].sum()
    columns = keys if name == "kernels" and not version("torch").startswith(FROZEN_WITH) else [*frozen.columns]
    for step in (0, 1):
        pd.testing.assert_frame_equal(sums.loc[step].reset_index()[columns], frozen[columns])
