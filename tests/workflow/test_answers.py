"""Documents: every question is answered or says why not, whatever the runs are; nothing of an earlier grid stays."""

import re
from pathlib import Path

import markdown
import pytest

from tests.workflow.small_tables import make_run, write_tables
from workflow.scripts import answers, precision, summaries
from workflow.scripts import compile as compiling
from workflow.tables import read_table
from workflow.text import TEMPLATES

SUMMARIES = ["forward_time", "top_kernels", "forward_classes", "forward_parts", "class_shares", "training_parts"]
SUMMARIES += ["attention", "attention_backward"]
LETTERS = ["a_forward_time", "b_top_kernels", "c_other_kernels", "d_training_vs_inference", "e_attention"]
FAILED = {"timing_status": "out_of_memory", "capture_status": "out_of_memory"}
CPU = {"device": "cpu", "backend": "torch", "device_name": "AMD"}


def answer(folder: Path, *runs: dict, names: list[str] = LETTERS, studies: dict | None = None) -> dict[str, str]:
    """The documents of runs by name; `studies`: scripts of further tables by the table's name."""
    tables = write_tables(folder, *runs)
    made = [str(folder / f"{name}.parquet") for name in SUMMARIES]
    summaries.main(tables, made)
    for name, script in (studies or {}).items():
        made.append(str(folder / f"{name}.parquet"))
        script.main(tables, [*made[-1:], str(folder / f"{name}.svg")])
    answers.main([*tables, *made], [str(TEMPLATES / f"{name}.md.j2") for name in names], str(folder / "answers"))
    return {path.stem: path.read_text() for path in (folder / "answers").iterdir()}


@pytest.fixture(scope="module")
def documents(tmp_path_factory) -> dict[str, str]:
    big = [make_run(f"big_{mode}", model="big", mode=mode, **FAILED) for mode in ("forward", "train_step")]
    return answer(tmp_path_factory.mktemp("grid"), make_run("forward"), make_run("train", mode="train_step"), *big)


@pytest.mark.parametrize("name", LETTERS)  # whose numbers tests/golden/test_example.py has
def test_a_document_has_its_question_why_what_to_do_and_the_machine(documents, name):
    text = documents[name]
    assert re.match(rf"# \({name[0]}\) .*\?\n\n", text) and "Not answered" not in text
    assert "because" in text.lower() and "What to do" in text and "Measured on NVIDIA H200" in text
    html = markdown.markdown(text, extensions=["tables"])  # names of kernels have signs of Markdown and HTML
    rows = [row for row in text.splitlines() if row.startswith("|") and set(row) - set("|:- ")]
    assert html.count("<tr>") == len(rows) and "<T>" not in html
    assert name[0] in "ce" or any(row.startswith("| big") and "OOM" in row for row in rows)


def test_all_documents_are_in_one_which_ends_with_what_is_missing_and_the_provenance(documents):
    text = documents["answers"]
    assert re.findall("^##? (.{3})", text, re.MULTILINE) == ["Ans", "(a)", "(b)", "(c)", "(d)", "(e)", "Not", "Pro"]
    assert "- big at context 128, training step: out of memory" in text and text.count("Measured on") == 1
    assert "tiny (2.00 M parameters, num_layers 2, d_model 64, d_ff 128)" in text.rpartition("## Provenance")[2]


GRIDS = {
    "nothing complete": [make_run("forward", **FAILED), make_run("train", mode="train_step", **FAILED)],
    "training alone": [make_run("train", mode="train_step")],
    "a CPU, one step": [make_run("forward", steps=1, **CPU), make_run("b", model="b", **CPU)],
    "dimensions": [make_run("a"), make_run("b", precision="bf16"), make_run("c", mode="train_step", gpus=2)],
}


@pytest.mark.parametrize("name", GRIDS)
def test_every_question_has_a_document_whatever_was_measured(tmp_path, name):
    documents = answer(tmp_path, *GRIDS[name])
    assert set(documents) == {*LETTERS, "answers"} and all(text.startswith("# ") for text in documents.values())
    assert not any(re.search(r"\b(nan|NaN|None)\b|\[\]", text) for text in documents.values())


def test_what_a_precision_and_compiling_gain_is_said_in_gpu_time_first(tmp_path):
    low = make_run("low", 2.0, mode="train_step", precision="bf16", loss=2.1)
    fused = make_run("fused", 1.25, mode="train_step", compile="on", graph_breaks=1, compile_s=5.0)
    studies = {"precision": precision, "compile": compiling}
    names = ["f_precision", "g_compile"]
    made = answer(tmp_path, make_run("base", mode="train_step"), low, fused, names=names, studies=studies)
    tables = {name: read_table(tmp_path / f"{name}.parquet").set_index("phase") for name in studies}
    assert tables["precision"]["speed_up"].tolist() == pytest.approx([2.0] * 4)
    assert set(tables["precision"]["verdict"]) == {"faster"}
    assert tables["precision"]["loss_difference"]["step"] == pytest.approx(0.05)
    assert tables["compile"]["pays_after_steps"].dropna().to_dict() == pytest.approx({"step": 8333}, rel=2e-3)
    assert all("GPU time" in (tmp_path / f"{name}.svg").read_text() for name in studies)
    assert "\n\nIn GPU time, a training step is 2.00 times as fast in bf16 as in fp32" in made["f_precision"]
    assert "whether that is faster cannot be told, from 1 process each" in made["f_precision"]
    assert "\n\nIn GPU time, a training step is 1.25 times as fast compiled entirely (tiny" in made["g_compile"]
    assert "only run had graph breaks" in made["g_compile"] and "pays back after" in made["g_compile"]


def test_a_precision_without_a_captured_pair_is_not_answered(tmp_path):
    runs = [make_run("base"), make_run("low", precision="bf16", **FAILED)]
    text = answer(tmp_path, *runs, names=["f_precision"], studies={"precision": precision})["f_precision"]
    said = "o two captured runs differ in precision alone."
    assert f"Not answered: n{said}" in text and f"N{said}" in (tmp_path / "precision.svg").read_text()
