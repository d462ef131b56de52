"""Documents: every question is answered or says why not, whatever the runs are; nothing of an earlier grid stays."""

import re
from pathlib import Path

import markdown
import pytest

from tests.workflow.small_tables import make_run, write_tables
from workflow.grid import SUMMARIES
from workflow.scripts import answers, summaries

LETTERS = ["a_forward_time", "b_top_kernels", "c_other_kernels", "d_training_vs_inference", "e_attention"]
FAILED = {"timing_status": "out_of_memory", "capture_status": "out_of_memory"}
CPU = {"device": "cpu", "backend": "torch", "device_name": "AMD"}


def answer(folder: Path, *runs: dict) -> dict[str, str]:
    """The documents (a) to (e) of runs by name."""
    tables = write_tables(folder, *runs)
    made = [str(folder / f"{name}.parquet") for name in SUMMARIES]
    summaries.main(tables, made)
    answers.main([*tables, *made], [f"{name}.md.j2" for name in LETTERS], str(folder / "answers"))
    return {path.stem: path.read_text() for path in (folder / "answers").iterdir()}


@pytest.fixture(scope="module")
def documents(tmp_path_factory) -> dict[str, str]:
    big = [make_run(f"big_{mode}", model="big", mode=mode, **FAILED) for mode in ("forward", "train_step")]
    return answer(tmp_path_factory.mktemp("grid"), make_run("forward"), make_run("train", mode="train_step"), *big)


@pytest.mark.parametrize("name", LETTERS)  # whose numbers tests/golden/test_example.py has
def test_a_document_has_its_question_why_what_to_do_and_the_machine(documents, name):
    text = documents[name]
    assert re.match(rf"# \({name[0]}\) .*\?\n\n.*tiny at context .*\n\n- Because: ", text) and "What to do" in text
    html = markdown.markdown(text, extensions=["tables"])  # names of kernels have signs of Markdown and HTML
    rows = [row for row in text.splitlines() if row.startswith("|") and set(row) - set("|:- ")]
    assert html.count("<tr>") == len(rows) and "<T>" not in html and html.count("<table>") == html.count("<img") == 1
    assert name[0] in "ce" or any(row.startswith("| big") and "OOM" in row for row in rows)


def test_all_documents_are_in_one_which_ends_with_what_is_missing_and_the_provenance(documents):
    text = documents["answers"]
    assert re.findall("^##? (.{3})", text, re.MULTILINE) == ["Ans", "(a)", "(b)", "(c)", "(d)", "(e)", "Not", "Pro"]
    assert "\n- big at context 128, training step: out of memory\n" in text and text.count("Measured on") == 1
    assert "\n\n4 runs: model tiny, big; context length 128; mode forward pass, training step; precision fp32" in text
    assert "Answers quote tiny at context 128, the run with the median time of a forward pass" in text
    sizes, machine, launch = text.rpartition("## Provenance\n\n")[2].splitlines()
    assert sizes.startswith("- Models: tiny (2.00 M parameters, num_layers 2, d_model 64, d_ff 128); big (")
    assert machine.startswith("- Measured on NVIDIA H200")
    assert launch.startswith("- Host per kernel under the profiler (NVTX") and ": 200 µs in " in launch


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


def test_no_document_of_an_earlier_grid_stays_nor_one_printed_from_it(tmp_path):
    (tmp_path / "answers").mkdir()
    for name in ("f_precision.md", "answers.pdf"):
        (tmp_path / "answers" / name).write_text("of an earlier grid")
    assert "of an earlier grid" not in answer(tmp_path, make_run("forward")).values()
    assert {path.name for path in (tmp_path / "answers").iterdir()} == {f"{name}.md" for name in [*LETTERS, "answers"]}
