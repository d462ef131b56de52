"""The declared columns: of what commands write as JSON, of the page, and of the frames that `read` gives."""

import json
from pathlib import Path

import jsonschema
import pandas as pd
import pytest

import kernel_tables
from kernel_tables.__main__ import main
from kernel_tables.columns import OBJECT, TABLES, Column, json_schema
from kernel_tables.markdown import code, compact_table
from tests.kernel_tables.torch_formats import STYLES, kernels_by_brute_force, trace_text, write_trace

RECENT = STYLES["2026, since a base"]
COMMANDS = {
    "ranges": [["ranges", "{}"], ["ranges", "{}", "--tree"], ["ranges", "{}", "{}"]],
    "kernels": [["kernels", "{}"], ["kernels", "{}", "{}"]],
    "classes": [["classes", "{}"], ["classes", "{}", "--ranks"]],
    "check": [["check", "{}", "--steps", "9"], ["check", "{}", "{}", "--steps", "9"]],
    "diagnose": [["diagnose", "{}"]],
    "diff": [["diff", "{}", "{}", "--all"]],
    "host": [["host", "{}"]],
    "communication": [["communication", "{}"]],
    "communication --collectives": [["communication", "{}", "--collectives"]],
    "names": [["names", "ampere_sgemm_128x64_nn"]],
}


@pytest.mark.parametrize("table", COMMANDS)
def test_the_json_of_a_command_is_what_its_schema_says(tmp_path, capsys, table):
    text = trace_text(RECENT).replace("void kernel1<float>", "ncclDevKernel_AllReduce_Sum_f32_RING_LL")
    path = tmp_path / "trace.json"
    path.write_text(text)
    schema = json_schema()
    for words in COMMANDS[table]:
        main([*(word.format(path) for word in words), "--format", "json"])
        rows = json.loads(capsys.readouterr().out)
        assert rows
        jsonschema.validate(rows, schema | {"$ref": f"#/$defs/{table}"})


@pytest.mark.parametrize(
    ("values", "fits"), [([{"ms": 1}, None], True), ([[1], {}], True), (["a"], False), ([1], False)]
)
def test_a_column_of_objects_holds_dicts_and_lists(values, fits):
    assert Column("evidence", OBJECT, "", "").fits(pd.Series(values)) is fits


def test_a_schema_refuses_a_column_that_it_does_not_declare(capsys):
    with pytest.raises(SystemExit):
        main(["--print-json-schema"])
    schema = json.loads(capsys.readouterr().out)
    assert schema["version"] == 1
    row = {"about": "class", "value": "x", "reason": "y"}
    jsonschema.validate([row], schema | {"$ref": "#/$defs/names"})
    for wrong in (row | {"more": 1}, row | {"about": 1}, {"about": "class"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate([wrong], schema | {"$ref": "#/$defs/names"})


def test_the_page_of_columns_is_made_of_their_declaration():
    rows = [
        (code(table) if number == 0 else "", code(column.name), column.meaning)
        for table, columns in TABLES.items()
        for number, column in enumerate(columns)
    ]
    page = Path(__file__).parents[2] / "docs" / "capture-columns.md"
    assert compact_table(("table", "column", "meaning"), rows) in page.read_text(encoding="utf-8")


def test_read_gives_frames_with_the_declared_columns(tmp_path):
    path = write_trace(tmp_path / "trace.json.gz", RECENT)
    frames = kernel_tables.read(path)
    for table in ("activities", "ranges", "kernels", "classes"):
        assert list(getattr(frames, table).columns) == [
            column.name for column in TABLES[table] if column.name != "rank"
        ]
    kernels = frames.activities[frames.activities["kind"] == "kernel"]
    assert (len(kernels), kernels["duration_ns"].sum()) == kernels_by_brute_force(trace_text(RECENT))
    assert kernels["range"].iloc[0] == "step > aten::op0(4×256, 256×8)"
    assert any("have no call in the trace" in note for note in frames.notes)


def test_read_gives_the_ranks_of_a_run_below_one_another_and_what_is_under_a_range(tmp_path):
    paths = [write_trace(tmp_path / f"{rank}.json", RECENT) for rank in range(2)]
    frames = kernel_tables.read(*paths, under="step")
    for table in frames[:4]:
        assert table.columns[0] == "rank"
        assert set(table["rank"]) == {0, 1}
    assert set(frames.activities["range"].str.partition(" > ")[0]) == {"step"}
