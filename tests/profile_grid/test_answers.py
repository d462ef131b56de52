import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jinja2
import pytest

from profile_grid.documents.documents import as_text, documents, template_environment
from profile_grid.documents.summaries import Summaries
from profile_grid.files import write_table
from profile_grid.study.catalogue import QUESTIONS, questions_asked
from profile_grid.study.dimensions import LEADING
from profile_grid.study.workloads import MODEL_STEPS
from profile_grid.tables.on_disk import declared_tables
from tests.profile_grid.made_up import ADAM, CPU, GEMM, H200, SOFTMAX, Kernel, Made, forward_kernels, grid, merged

ROOT = Path(__file__).parents[2]
HOSTILE = r"<script>alert(1)</script>|$\input{x}$"
PROVENANCE = {
    "runs": 12, "statuses": {"complete / complete": 11, "out_of_memory / out_of_memory": 1},
    "device_name": "NVIDIA H200", "gpu_uuid_sha256": "5f2a", "driver": ["570.1", "580.82"], "cuda": "13.0",
    "torch": "2.11.0", "nsys": "2025.3.1", "backend": "nsys", "python": "3.12.3", "snakemake": "9.27.1",
    "measured_git_commit": None, "git_commit": "52a513d", "git_clean": False,
    "first_run_utc": "2026-01-01T00:00:00Z",
    "last_run_utc": "2026-01-01T00:20:00Z", "config_sha256": "99aa",
}  # fmt: skip
OOM = {
    "oom_during": "warmup step 0: backward", "oom_requested_bytes": 18 * 2**30,
    "oom_free_bytes": int(3.1 * 2**30), "oom_total_bytes": int(139.7 * 2**30), "reason": "CUDA out of memory",
}  # fmt: skip

RENDERED: dict[str, dict[str, str]] = {}


def rendered(runs: list[Made]) -> dict[str, str]:
    """All documents that the runs can answer, of the tables of those questions; made once of the same runs."""
    if (made := repr(runs)) not in RENDERED:
        RENDERED[made] = rendered_anew(runs)
    return RENDERED[made]


def rendered_anew(runs: list[Made]) -> dict[str, str]:
    tables = merged(runs)
    own = {name for one in questions_asked(tables["runs"].to_dict("records")) for name in one.tables}
    return documents(Summaries(tables, own), tables["runs"], PROVENANCE)


def line_of(document: str, *cells: str) -> str:
    """The first line of a table that begins with these cells."""
    start = [cell.strip() for cell in cells]
    lines = [line for line in document.splitlines() if line.startswith("|")]
    return next(line for line in lines if [cell.strip() for cell in line.split("|")[1 : 1 + len(start)]] == start)


def test_there_is_one_document_per_question_and_one_that_holds_them_all():
    answers = rendered(grid())
    of_models = [one for one in QUESTIONS if one.workload is MODEL_STEPS]
    asked = [one for one in of_models if one.has_document and not (one.varies or one.needs or one.stage)]
    assert {"a_forward_time", "time_lost"} < {one.name for one in asked}
    assert list(answers) == [*(one.name for one in asked), "answers"]
    for question in asked:
        assert f"\n## {question.heading}\n" in answers["answers"]
        assert answers[question.name].startswith(f"# {question.heading}\n")
    for text in answers.values():
        assert "\n\n\n" not in text
        assert text.endswith("- configuration SHA-256 99aa\n")


def test_an_answer_leads_with_sentences_and_then_the_table():
    first, second, third, *_, last = rendered(grid())["b_top_kernels"].split("\n\n")
    assert first == "# (b) Which kernel takes the most time?"
    assert second.startswith("The top kernel takes 51.2 % to 67.8 % of the forward pass (median 61.6 %): **sgemm 256")
    assert "\n" not in second
    assert all(line.startswith("- ") for line in third.splitlines())
    assert last.startswith("- runs: 12")


def test_a_table_has_the_short_name_and_the_legend_the_full_name():
    text = rendered(grid())["b_top_kernels"]
    assert line_of(text, "small", "512").split("|")[3].strip() == "**sgemm 256×128 nn**: 6.40 ms, 60 ×, 65.3 %"
    assert f"- **sgemm 256×128 nn**: `{GEMM}`" in text
    assert text.count(GEMM) == 1


def test_the_legend_holds_only_what_the_document_mentions():
    answers = rendered(grid())
    assert SOFTMAX not in answers["b_top_kernels"]
    assert SOFTMAX in answers["c_other_kernels"]
    assert ADAM not in answers["answers"]


def test_an_out_of_memory_run_is_a_cell_and_a_reason_and_never_a_zero():
    status = {"timing_status": "out_of_memory", "capture_status": "out_of_memory", "kernels": (), "others": OOM}
    runs = [replace(run, **status) if (run.model, run.context_length) == ("large", 512) else run for run in grid()]
    text = rendered(runs)["answers"]
    assert line_of(text, "large", "5.51 ± 0.10") == "| large | 5.51 ± 0.10 |          OOM |"
    for table in ("NVTX", "elementwise", "loss", "runtime ratio"):
        below = text[text.index(table) :]
        cells = [cell.strip() for cell in line_of(below, "large", "512").split("|")[3:-1]]
        assert cells[0] == "OOM"
        assert set(cells[1:]) <= {"–", "OOM"}
    assert (
        "- 3 of 12 runs: out of memory in warm-up step 0 (backward): 18.0 GiB requested, 3.1 GiB free of 139.7 GiB\n"
        in text
    )


def test_an_incomplete_capture_keeps_its_timing_and_says_why():
    runs = [Made(kernels=(), capture_status="incomplete", others={"reason": "cut short"}), *grid(models=("large",))]
    text = rendered(runs)["a_forward_time"]
    cells = [cell.strip() for cell in line_of(text, "small", "512").split("|")[3:-1]]
    assert cells[:3] == ["11.80 ± 0.10", "incomplete", "–"]
    assert "- small at context 512, forward pass: capture incomplete: cut short" in text


def test_a_document_names_as_not_measured_only_what_it_shows():
    of_energy = {"energy_status": "incomplete", "reason": "energy: the counter stood still"}
    both = {"energy_status": "incomplete", "reason": "capture: cut short; with a rest; energy: the counter stood still"}
    runs = [
        Made(kernels=forward_kernels(), others=of_energy),
        Made(model="large", kernels=(), capture_status="incomplete", others=both),
        Made(model="medium", kernels=(), capture_status="incomplete", others={"reason": "damaged"}),
    ]
    made = rendered(runs)

    def lines(name: str) -> list[str]:
        section = made[name].partition("# Not measured\n\n")[2].partition("\n\n")[0]
        return [line.removeprefix("- ") for line in section.splitlines()]

    large, medium = "large at context 512, forward pass: ", "medium at context 512, forward pass: "
    assert lines("a_forward_time") == [
        f"{large}capture incomplete: capture: cut short; with a rest", f"{medium}capture incomplete: damaged",
    ]  # fmt: skip
    assert lines("m_energy") == [
        "small at context 512, forward pass: energy incomplete: energy: the counter stood still",
        f"{large}capture and energy incomplete: capture: cut short; with a rest; energy: the counter stood still",
    ]  # the energy of medium was not asked for
    assert len(lines("answers")) == 3


def test_a_configuration_outside_the_grid_is_not_called_missing():
    runs = [run for run in grid() if (run.model, run.mode) != ("large", "train_step")]
    assert line_of(rendered(runs)["b_top_kernels"], "large", "128").split("|")[-2].strip() == "not run"


def test_two_machines_never_share_a_table_and_each_has_its_command():
    runs = [replace(run, machine={**H200, "driver": "570.1"}) if run.model == "large" else run for run in grid()]
    for name, text in rendered(runs).items():
        assert "Results of 2 machines" in text
        tables = [part for part in text.split("\n\n") if part.startswith("| model")]
        assert all(not ("| small" in table and "| large" in table) for table in tables), name
        assert "# NVIDIA H200, driver 580.82, CUDA 13.0, PyTorch 2.11.0, Nsight Systems 2025.3.1" in text
        assert "# NVIDIA H200, driver 570.1, CUDA 13.0, PyTorch 2.11.0, Nsight Systems 2025.3.1" in text
        small, large = text.split("```sh\n")[1:]
        assert small.startswith(
            "snakemake --cores 1 all --forcerun \\\n    results/runs/small_ctx128_forward/timing.json"
        )
        assert "small" not in large.split("```")[0]


def test_one_machine_needs_no_command():
    assert "forcerun" not in rendered(grid())["answers"]


def test_a_cpu_document_says_what_made_its_numbers():
    kernels = (
        Kernel("forward", "", "aten::mm", "gemm", 5, 900.0),
        Kernel("forward", "", "aten::mul", "elementwise", 9, 90.0),
    )
    for text in rendered([Made(kernels=kernels, machine=CPU)]).values():
        assert "Measured on a CPU (AMD EPYC 9754, PyTorch 2.13.0+cpu, PyTorch's own profiler)." in text
        assert "There are no CUDA kernels; the profiler recorded ATen operators" in text


def test_provenance_names_every_version_where_runs_disagree():
    text = rendered(grid())["e_attention"]
    assert "- driver 570.1; 580.82, CUDA 13.0, PyTorch 2.11.0, Python 3.12.3, Snakemake 9.27.1" in text
    assert "- runs: 12; timing and capture: 11 complete, 1 out of memory" in text
    assert "- git commit of the measurements: not recorded\n- git commit of the documents: 52a513d with changes" in text
    assert as_text(None) == "not recorded"


def test_a_hostile_kernel_and_model_name_render_as_their_names():
    pypandoc = pytest.importorskip("pypandoc", reason="pypandoc_binary is not installed")
    kernels = (Kernel("forward", HOSTILE, HOSTILE, "gemm", 5, 900.0), *forward_kernels(9.0))
    findings = ((HOSTILE, False, 1.0, 10.0, "likely", HOSTILE, HOSTILE, "{}", "{}"),)
    answers = rendered([Made(model=HOSTILE, kernels=kernels, findings=findings)])
    del answers["d_training_vs_inference"]  # has no table of one forward run
    for text in answers.values():
        html = pypandoc.convert_text(text, "html", format="gfm")
        assert "<script" not in html
        assert "math" not in html
        assert "&lt;script&gt;alert(1)&lt;/script&gt;|$\\input{x}$" in html


def test_an_unknown_name_in_a_template_is_an_error():
    with pytest.raises(jinja2.UndefinedError):
        template_environment().from_string("{{ no_such_figure }}").render()


def test_the_scripts_go_from_merged_tables_to_documents(tmp_path):
    for name, table in merged(grid()).items():
        write_table(tmp_path / f"{name}.csv", table.reindex(columns=declared_tables()[name].all_names))
    (tmp_path / "provenance.json").write_text(json.dumps(PROVENANCE))
    for script, *options in (("summaries",), ("answers", "--output", str(tmp_path / "answers"))):
        command = [sys.executable, "-m", "workflow.scripts", script, "--tables", str(tmp_path), *options]
        subprocess.run(command, cwd=ROOT, check=True)
    assert (tmp_path / "answers" / "answers.md").read_text() == rendered(grid())["answers"]
    assert (tmp_path / "top_kernels.csv").read_text().startswith(",".join(LEADING) + ",scope,rank,kernel,")


def test_facts_of_a_machine_are_text_in_every_document():
    hostile = {list: [HOSTILE], dict: {f"{HOSTILE} / {HOSTILE}": 12}, str: HOSTILE}
    facts = {name: hostile.get(type(value), value) for name, value in PROVENANCE.items()}
    tables = merged(grid())
    for document in documents(Summaries(tables), tables["runs"], facts).values():
        assert r"\<script\>alert" in document
        assert HOSTILE not in document and "<script>" not in document


def test_classes_are_told_before_and_after_and_matrix_multiplies_with_their_change():
    table = rendered(grid())["d_training_vs_inference"].split("\n\n")[5]
    assert [cell.strip() for cell in line_of(table, "model").split("|")[3:7]] == [
        "gemm, %", "elementwise, %", "optimizer, %", "softmax, %",
    ]  # fmt: skip
    assert [cell.strip() for cell in line_of(table, "small", "512").split("|")[3:7]] == [
        "81.6 → 66.7 (−15.0)", "6.1 → 18.3", "0.0 → 11.1", "9.2 → 3.1",
    ]  # fmt: skip
