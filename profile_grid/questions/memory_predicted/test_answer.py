"""What fits by the shapes, from runs with planted memory, and from the example on several GPUs."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from cs336_model.arithmetic.flops import ModelShape, parameter_count
from cs336_model.arithmetic.memory import estimated_peak_bytes
from cs336_model.program.variants.predicted_memory import (
    ACTIVATIONS,
    BUCKETS,
    GATHERED,
    GRADIENTS,
    MOMENTS,
    PARAMETERS,
    predicted_parts,
    predicted_peak_bytes,
)
from profile_grid.documents.documents import document_names, documents
from profile_grid.documents.summaries import summary_tables
from profile_grid.questions.memory_predicted.table import memory_predicted
from profile_grid.tables.per_pass import Merged
from tests.default_values import DEFAULT_VALUES
from tests.profile_grid.made_up import Made, merged
from tests.profile_grid.test_answers import PROVENANCE

NAME, GIB = "memory_predicted", 2**30
EXAMPLE = Path(__file__).parents[3] / "docs/example-h200/parallel/tables"
SHAPE = ModelShape(2, 512, 10000, 768, 12, 12, 3072)
TRAINING = DEFAULT_VALUES | {"mode": "train_step"}
WEIGHTS = 4 * parameter_count(SHAPE)  # bytes


def test_one_process_has_all_of_everything_and_the_peak_of_its_step():
    parts = predicted_parts(SHAPE, TRAINING)
    assert [parts[name] for name in (PARAMETERS, GRADIENTS, MOMENTS)] == [WEIGHTS, WEIGHTS, 2 * WEIGHTS]
    assert not {GATHERED, BUCKETS} & {*parts}
    assert predicted_peak_bytes(SHAPE, TRAINING) == estimated_peak_bytes(SHAPE, "train_step", TRAINING)
    assert set(predicted_parts(SHAPE, TRAINING | {"mode": "forward"})) == {PARAMETERS, "logits and loss"}


def test_what_is_divided_among_gpus_is_a_part_on_each():
    several = TRAINING | {"gpus": 4}
    ddp = predicted_parts(SHAPE, several | {"parallel": "ddp"})
    assert (ddp[PARAMETERS], ddp[BUCKETS]) == (WEIGHTS, WEIGHTS)
    fsdp = predicted_parts(SHAPE, several | {"parallel": "fsdp"})
    assert [fsdp[name] for name in (PARAMETERS, GRADIENTS, MOMENTS)] == [WEIGHTS // 4, WEIGHTS // 4, WEIGHTS // 2]
    block = 4 * 768**2 + 3 * 768 * 3072 + 2 * 768
    assert fsdp[GATHERED] == 4 * (2 * 10000 * 768 + 2 * block + 768)
    assert fsdp[ACTIVATIONS] == ddp[ACTIVATIONS]
    peaks = {way: predicted_peak_bytes(SHAPE, several | {"parallel": way}) for way in ("naive", "ddp", "fsdp")}
    assert peaks["ddp"] == peaks["naive"] + WEIGHTS and peaks["fsdp"] < peaks["naive"]


def test_measured_peaks_on_several_gpus_are_the_predicted_ones():
    tables = {"runs": pd.read_parquet(EXAMPLE / "runs.parquet").assign(checkpoint="0")}  # the example has the number
    rows = memory_predicted(Merged(tables)).drop_duplicates("run")
    assert len(rows) == 10 and rows["fits"].all() and rows["fitted"].all()
    error = (rows["measured_peak_bytes"] - rows["peak_bytes"]).astype("float64")
    assert (error.abs() / rows["peak_bytes"] < 0.035).all()


MEASURED = {"memory_status": "complete", "device_total_bytes": 80 * GIB}
FITS = Made(mode="train_step", peak_allocated_bytes=8 * GIB, others=MEASURED)
TOO_LARGE = replace(
    FITS, batch_size=256, timing_status="out_of_memory", capture_status="out_of_memory",
    others=MEASURED | {"memory_status": "out_of_memory"},
)  # fmt: skip


@pytest.fixture
def tables() -> dict[str, pd.DataFrame]:
    return merged([FITS, TOO_LARGE])


def document(tables) -> str:
    return documents(summary_tables(tables, (NAME,)), tables["runs"], PROVENANCE, [NAME])[NAME]


def test_the_document_says_what_fits_by_the_shapes_and_whether_it_did(tables):
    assert NAME in document_names(tables["runs"])
    text = document(tables)
    fits = (
        "Predicted from the shapes, with 1.0 GiB added to the tensors, 1 of 2 runs fits into 80.0 GiB; measured, 1 of 2"
    )
    assert f"{fits} runs fits." in text
    assert "Prediction and measurement agree in both runs." in text
    line = next(line for line in text.splitlines() if line.startswith("| small") and "| 256 " in line)
    assert "| no " in line and "| OOM " in line and "activations" in line


def test_a_run_that_ended_otherwise_is_named(tables):
    runs = tables["runs"]
    runs.loc[runs["batch_size"] == 256, "timing_status"] = "complete"
    assert "in 1 of 2 runs; not in small at context 512 with batch 256, training step." in document(tables)


def test_without_shapes_nothing_is_predicted(tables):
    tables["runs"]["d_model"] = None
    assert "Not answered: only the memory of this project's model is predicted" in document(tables)


def test_whether_a_run_fits_is_unknown_where_it_does_not_say_how_large_its_gpu_is():
    rows = memory_predicted(Merged(merged([FITS, replace(FITS, batch_size=8, others={})])))
    of_size = rows.drop_duplicates("run").set_index("batch_size")
    assert of_size["fits"].to_dict() == {FITS.batch_size: True, 8: None}
    assert of_size["device_total_bytes"].isna().to_dict() == {FITS.batch_size: False, 8: True}
