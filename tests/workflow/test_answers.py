"""Documents: every question is answered or says why not, whatever the runs are; nothing of an earlier grid stays."""

import re
from pathlib import Path

import markdown
import pytest

from tests.workflow.small_tables import make_run, write_tables
from workflow.scripts import answers, summaries
from workflow.scripts import compile as compiling
from workflow.scripts import precision as lowering
from workflow.text import TEMPLATES

SUMMARIES = [
    "forward_time", "top_kernels", "forward_classes", "forward_parts", "class_shares", "training_parts", "attention",
    "attention_backward",
]  # fmt: skip
LETTERS = [
    "a_forward_time", "b_top_kernels", "c_other_kernels", "d_training_vs_inference", "e_attention",
]  # fmt: skip
FAILED = {"timing_status": "out_of_memory", "capture_status": "out_of_memory"}


def answer(folder: Path, *runs: dict, names: list[str] = LETTERS, studies: dict | None = None) -> dict[str, str]:
    """The documents of runs by name; `studies`: scripts of further tables by the table's name."""
    tables = write_tables(folder, *runs)
    made = [str(folder / f"{name}.parquet") for name in SUMMARIES]
    summaries.main(tables, made)
    for name, script in (studies or {}).items():
        made.append(str(folder / f"{name}.parquet"))
        script.main(tables, made[-1:])
    answers.main([*tables, *made], [str(TEMPLATES / f"{name}.md.j2") for name in names], str(folder / "answers"))
    return {path.stem: path.read_text() for path in (folder / "answers").iterdir()}


@pytest.fixture(scope="module")
def documents(tmp_path_factory) -> dict[str, str]:
    runs = [
        make_run("forward"), make_run("train", mode="train_step"), make_run("big", model="big", **FAILED),
        make_run("big_train", model="big", mode="train_step", **FAILED),
    ]  # fmt: skip
    return answer(tmp_path_factory.mktemp("grid"), *runs)


LEADS = {  # and the numbers of KERNELS in small_tables.py
    "a_forward_time": "A forward pass takes 4.00 ms; under the profiler, the time differs by at most 5 % in none of 1"
    " run.",
    "b_top_kernels": "The top kernel takes 50.0 % of the forward pass: `gemm` in the only run; the same kernel leads"
    " training in the only run.",
    "c_other_kernels": "Everything but matrix multiplies takes 10.0 % of the forward pass; its longest part is"
    " `computing softmax` in the only run.",
    "d_training_vs_inference": "In the training step, matrix multiplies take a smaller share than in inference in the"
    " only run (26.7 points); median change −26.7 points.",
    "e_attention": "Softmax takes 0.250 times as long as both matrix multiplies of attention together (median 0.250),"
    " for 3.9 % of their FLOPs.",
}


@pytest.mark.parametrize("name", LETTERS)
def test_a_document_begins_with_its_question_and_the_answer(documents, name):
    heading, lead = documents[name].split("\n\n")[:2]
    assert heading.startswith(f"# ({name[0]}) ") and heading.endswith("?") and lead == LEADS[name]


@pytest.mark.parametrize("name", LETTERS)
def test_a_document_says_why_and_what_to_do_and_with_what_it_was_measured(documents, name):
    text = documents[name]
    assert "because" in text.lower() and "What to do" in text and "Measured on NVIDIA H200" in text
    assert "Not measured" not in text  # that stands once, at the end of answers.md


def test_all_documents_are_in_one_which_ends_with_what_is_missing_and_the_provenance(documents):
    text = documents["answers"]
    headings = [line for line in text.splitlines() if line.startswith("#")]
    assert [heading[:6] for heading in headings] == [
        "# Answ", "## (a)", "## (b)", "## (c)", "## (d)", "## (e)", "## Not", "## Pro",
    ]  # fmt: skip
    assert "- big at context 128, training step: out of memory" in text
    assert "tiny (2.00 M parameters: 2 layers, d_model 64, d_ff 128)" in text.rpartition("## Provenance")[2]


def test_a_run_out_of_memory_has_a_row_that_says_so(documents):
    for name in ("a_forward_time", "b_top_kernels", "d_training_vs_inference"):
        assert any(line.startswith("| big") and "OOM" in line for line in documents[name].splitlines()), name


def test_a_kernel_with_signs_of_markdown_breaks_no_table(documents):
    for name in LETTERS:
        html = markdown.markdown(documents[name], extensions=["tables"])
        rows = [row for row in documents[name].splitlines() if row.startswith("|")]
        assert html.count("<tr>") == len([row for row in rows if set(row) - set("|:- ")]), name
        assert "<T>" not in html and "<script" not in html
    assert "``" in documents["c_other_kernels"]  # its full name as code


def test_documents_of_an_earlier_grid_go(tmp_path):
    (tmp_path / "answers").mkdir()
    for name in ("old.md", "old.tex", "notes.txt"):
        (tmp_path / "answers" / name).write_text("old")
    assert set(answer(tmp_path, make_run("forward"), names=LETTERS[:1])) == {"a_forward_time", "answers", "notes"}


CPU = {"device": "cpu", "backend": "torch", "device_name": "AMD"}
GRIDS = {
    "nothing complete": [make_run("forward", **FAILED), make_run("train", mode="train_step", **FAILED)],
    "training alone": [make_run("train", mode="train_step")],
    "one step": [make_run("forward", steps=1)],
    "a CPU": [make_run("forward", **CPU), make_run("b", model="b", **CPU)],
    "many dimensions": [
        make_run("forward"), make_run("low", precision="bf16"),
        make_run("ddp", mode="train_step", gpus=2, parallel="ddp"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", GRIDS)
def test_every_question_has_a_document_whatever_was_measured(tmp_path, name):
    documents = answer(tmp_path, *GRIDS[name])
    assert set(documents) == {*LETTERS, "answers"} and all(text.startswith("# ") for text in documents.values())
    assert not any(re.search(r"\b(nan|NaN|None)\b|\[\]", text) for text in documents.values())


def test_a_grid_of_training_alone_says_how_long_its_forward_phase_takes(tmp_path):
    lead = answer(tmp_path, *GRIDS["training alone"])["a_forward_time"].split("\n\n")[1]
    assert lead.startswith("In the training step, the forward pass takes 1.00 ms of GPU time")


def test_a_launch_bound_run_is_told_to_launch_less(documents):
    bullet = next(line for line in documents["a_forward_time"].splitlines() if "launch-bound under" in line)
    assert "tiny at context 128" in bullet and "compiles: [on]" in bullet and "CUDA graphs" in bullet


def test_what_a_precision_and_compiling_gain_is_said_in_gpu_time_first(tmp_path):
    runs = [
        make_run("base", mode="train_step"), make_run("low", 2.0, mode="train_step", precision="bf16"),
        make_run("fused", 1.25, mode="train_step", compile="on", graph_breaks=1, compile_s=5.0),
    ]  # fmt: skip
    studies = {"precision": lowering, "compile": compiling}
    documents = answer(tmp_path, *runs, names=["f_precision", "g_compile"], studies=studies)
    leads = {name: text.split("\n\n")[1] for name, text in documents.items()}
    assert leads["f_precision"].startswith("In GPU time, a training step is 2.00 times as fast in bf16 as in fp32")
    assert leads["g_compile"].startswith("In GPU time, a training step is 1.25 times as fast compiled entirely")
    assert "faster in the only run" in documents["f_precision"]
    assert "whether that is faster cannot be told, from 1 process each" in documents["f_precision"]
    assert "only run had graph breaks" in documents["g_compile"] and "pays back after" in documents["g_compile"]


def test_a_precision_without_a_captured_pair_is_not_answered(tmp_path):
    runs = [make_run("base"), make_run("low", precision="bf16", **FAILED)]
    text = answer(tmp_path, *runs, names=["f_precision"], studies={"precision": lowering})["f_precision"]
    assert "Not answered: no two captured runs differ in precision alone." in text
