"""Makes the example again from its merged tables, without a GPU: `python -m docs.render_example [--into FOLDER]`.

docs/example-h200 has a folder per study: tables/*.parquet, answers/answers.md, figures/*.svg. Its tables may have
columns, and there may be tables, that are no longer declared; a column that a study lacks is empty.
"""

import argparse
import shutil
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

from workflow.grid import STUDIES, SUMMARIES
from workflow.scripts import answers, compare, figures, summaries
from workflow.tables import declared_columns, declared_tables, dictionary, make_table, read_table, write_table

H200 = Path(__file__).with_name("example-h200")
MERGED = ["runs", "timings", "phases", "kernels", "ranges"]  # which a study of memory lacks: then empty
COURSE = ["a_forward_time", "b_top_kernels", "c_other_kernels", "d_training_vs_inference", "e_attention"]
MADE = {*SUMMARIES, *(name for _, names, *_ in STUDIES.values() for name in names)}
ASKED = {  # by folder, the questions that its document answers
    ".": [*COURSE, "time_lost"], "precision": ["f_precision", "g_compile"], "attention": ["h_attention"],
    "energy": ["m_energy"], "memory": ["i_memory"], "checkpoint": ["j_checkpoint"], "counters": ["l_counters"],
    "parallel": ["n_communication"], "parallel-2026": ["n_communication"], "attention-sweep": ["attention_sweep"],
}  # fmt: skip


def render_study(study: Path, questions: list[str], into: Path) -> None:
    """Writes the document and the figures of a study into a folder, instead of those that are there."""
    for name in ("answers", "figures"):
        shutil.rmtree(into / name, ignore_errors=True)
    with TemporaryDirectory() as scratch:
        paths = {name: study / f"tables/{name}.parquet" for name in declared_tables() if name not in MADE}
        names = [name for name, path in paths.items() if name in MERGED or path.exists()]
        for name in names:
            table = read_table(paths[name]) if paths[name].exists() else make_table(name)
            write_table(table.reindex(columns=list(declared_columns(name))), Path(scratch, name))
        tables = list_files(Path(scratch), names)
        made = list_files(Path(scratch), SUMMARIES)
        summaries.main(tables, made)
        if questions[:5] == COURSE:
            figures.main([*tables, *made], [f"{into}/figures/{name}.svg" for name in figures.DRAWN])
        for script, names, drawn, _ in (STUDIES[question] for question in questions if question in STUDIES):
            written = list_files(Path(scratch), names)
            drawings = [f"{into}/figures/{name}.svg" for name in drawn]
            import_module(f"workflow.scripts.{script}").main(tables, [*written, *drawings])
            made += written
        answers.main([*tables, *made], [f"{question}.md.j2" for question in questions], str(into / "answers"))
    for path in (into / "answers").iterdir():
        if path.name != "answers.md":
            path.unlink()


def list_files(folder: Path, names: list[str]) -> list[str]:
    return [str(folder / f"{name}.parquet") for name in names]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--into", type=Path, default=H200, help="another folder for documents and figures")
    into = parser.parse_args().into
    for folder, questions in ASKED.items():
        render_study(H200 / folder, questions, into / folder)
        print(folder, flush=True)
    for path in sorted(H200.glob("comparison/*/comparison.md")):
        output = into / path.relative_to(H200)
        compare.main(str(path.parent / "before"), str(path.parent / "after"), "nothing", str(output))
    (into / "tables").mkdir(exist_ok=True)
    (into / "tables/README.md").write_text(dictionary(), encoding="utf-8")


if __name__ == "__main__":
    main()
