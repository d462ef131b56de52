"""Makes the example again from its merged tables, without a GPU: `python -m docs.render_example`.

docs/example-h200 has a folder per study: tables/*.parquet, answers/answers.md, figures/*.svg. Tables of questions are
made again, too; what no question reads, and columns that are no longer declared, are removed. A table without rows has
no file.
"""

from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from workflow.scripts import answers, compare, figures, summaries
from workflow.tables import declared_columns, dictionary, make_table, read_table, write_table

H200 = Path(__file__).with_name("example-h200")
TEMPLATES = Path(__file__).parents[1] / "workflow/templates"
MERGED = ["runs", "timings", "steps", "kernels", "phases", "ranges"]  # that any question may read
SUMMARIES = ["forward_time", "top_kernels", "forward_classes", "forward_parts", "class_shares", "training_parts"]
SUMMARIES += ["attention", "attention_backward"]
COURSE = ["a_forward_time", "b_top_kernels", "c_other_kernels", "d_training_vs_inference", "e_attention"]
COURSE_FIGURES = ["phase_times", "class_shares", "top_kernels", "attention", "launch_bound", "roofline", "scaling"]
STUDIES = {  # by question: its script, further merged tables that it reads, tables that it makes, its figure
    "time_lost": ("time_lost", ["findings"], ["time_lost"], None),
    "f_precision": ("precision", [], ["precision"], "precision"),
    "g_compile": ("compile", [], ["compile"], "compile"),
    "h_attention": ("attention_backends", [], ["attention_backends"], "attention_backends"),
    "i_memory": ("memory_parts", ["memory_phases", "memory_activations", "memory_timeline", "memory_totals",
                 "memory_blocks", "memory_largest"], ["memory_peak", "memory_parts"], "memory_timeline"),
    "j_checkpoint": ("checkpoint", ["memory_totals", "memory_activations"], ["checkpoint"], "checkpoint"),
    "k_warmup": ("warmup", ["warmup_steps"], ["warmup_enough"], "warmup"),
    "l_counters": ("counters", ["counters"], ["counter_kernels"], "measured_roofline"),
    "m_energy": ("energy", ["energy_windows"], ["energy"], "energy"),
    "n_communication": ("communication", ["communication_steps", "communication_collectives"],
                        ["communication_times", "communication_scaling"], "communication"),
    "attention_sweep": ("attention_sweep", ["attention_cells"], ["attention_sweep"], "attention_sweep"),
}  # fmt: skip
ASKED = {  # by folder, the questions that its document answers
    ".": COURSE, "cs336-2026": [*COURSE, "f_precision", "i_memory"], "precision": ["f_precision"],
    "compile": ["g_compile"], "attention": ["h_attention"], "memory": ["i_memory"], "block": ["i_memory"],
    "checkpoint": ["j_checkpoint"], "checkpoint-bf16": ["j_checkpoint"], "first-step": ["k_warmup"],
    "counters": ["l_counters"], "energy": ["m_energy"], "parallel": ["n_communication"],
    "parallel-2026": ["n_communication"], "diagnosis": ["time_lost"], "attention-sweep": ["attention_sweep"],
}  # fmt: skip


def render_study(study: Path, questions: list[str]) -> None:
    """Makes the tables, the document and the figures of a study, and removes everything else of its folder."""
    has_course = questions[0] == COURSE[0]
    read = {*MERGED, *(name for question in questions if question in STUDIES for name in STUDIES[question][1])}
    made = {*(SUMMARIES if has_course else ()), *(name for q in questions if q in STUDIES for name in STUDIES[q][2])}
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name in read | made:
            copy_table(study / "tables", folder / "tables", name)
        if has_course:
            summaries.main(list_files(folder, read), list_files(folder, SUMMARIES))
            figures.main(list_files(folder, read | {*SUMMARIES}), [f"{folder}/figures/{n}.svg" for n in COURSE_FIGURES])
        for question in questions:
            script, _, tables, figure = STUDIES.get(question, ("", [], [], None))
            if script:
                outputs = list_files(folder, tables) + [f"{folder}/figures/{figure}.svg"] * (figure is not None)
                import_module(f"workflow.scripts.{script}").main(list_files(folder, read), outputs)
        templates = [str(TEMPLATES / f"{question}.md.j2") for question in questions]
        answers.main(list_files(folder, read | made), templates, f"{folder}/answers")
        replace(study / "answers", {"answers.md": (folder / "answers/answers.md").read_bytes()})
        drawn = sorted((folder / "figures").glob("*.svg")) if (folder / "figures").is_dir() else []
        replace(study / "figures", {path.name: path.read_bytes() for path in drawn})
        kept = {f"{name}.parquet": read_table(folder / f"tables/{name}.parquet") for name in sorted(read | made)}
    for path in (study / "tables").iterdir():
        if path.name not in kept and path.name != "README.md":
            path.unlink()
    for name, table in kept.items():
        write_small(study / "tables" / name, table)


def copy_table(source: Path, target: Path, name: str) -> None:
    """Writes a table with every declared column; it is empty, or a column is, if the example lacks it."""
    path = source / f"{name}.parquet"
    table = read_table(path) if path.exists() else make_table(name)
    missing = {column: None for column in declared_columns(name) if column not in table}
    table = table.assign(**missing)
    rows = make_table(name, table[list(declared_columns(name))].astype("object").to_numpy().tolist())
    write_table(rows, target / f"{name}.parquet")


def list_files(folder: Path, names: Iterable[str]) -> list[str]:
    return [str(folder / f"tables/{name}.parquet") for name in sorted(names)]


def replace(folder: Path, contents: dict[str, bytes]) -> None:
    """Writes these files, and removes all others of the folder."""
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        if path.name not in contents:
            path.unlink()
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    if not contents:
        folder.rmdir()


def write_small(path: Path, table: pd.DataFrame) -> None:
    """Writes a table in few bytes, or removes its file if it has no rows; columns without any value are left out."""
    table = table.dropna(axis="columns", how="all")
    if table.empty:
        path.unlink(missing_ok=True)
        return
    arrow = pa.Table.from_pandas(table, preserve_index=False)
    columns = [(field.name, field.type) for field in arrow.schema]
    encodings = {name: "DELTA_BINARY_PACKED" for name, kind in columns if pa.types.is_integer(kind)}
    encodings |= {name: "BYTE_STREAM_SPLIT" for name, kind in columns if pa.types.is_floating(kind)}
    pq.write_table(
        arrow, path, compression="zstd", compression_level=19, column_encoding=encodings,
        use_dictionary=[name for name, _ in columns if name not in encodings], write_statistics=False,
        store_schema=False,
    )  # fmt: skip


def main() -> None:
    for folder, questions in ASKED.items():
        render_study(H200 / folder, questions)
        print(folder, flush=True)
    for comparison in sorted(path.parent for path in H200.glob("comparison/*/comparison.md")):
        for path in [*comparison.glob("*.parquet"), *comparison.glob("*.svg"), *comparison.glob("*/tables/*.json")]:
            path.unlink()
        before, after = (str(comparison / side) for side in ("before", "after"))
        compare.main(before, after, None, "nothing", str(comparison / "comparison.md"))
        (comparison / "comparison.html").unlink()
    (H200 / "tables" / "README.md").write_text(dictionary())


if __name__ == "__main__":
    main()
