"""One page for the grid: its tables, documents and figures -> results/report.html, one file that needs no network.

It has the frame, the table of a step and the flame graph of the page of a recording (kernel_tables/page).
"""

import base64
import re
from pathlib import Path

import pandas as pd
from markdown_it import MarkdownIt
from markupsafe import Markup

from kernel_tables.attribution import names_in
from kernel_tables.output import write_text
from kernel_tables.page.page import Leaf, flame, html_environment, step_rows
from workflow.peaks import peak_flop_per_s
from workflow.tables import read_tables
from workflow.text import describe_machine, describe_run, list_missing

TEMPLATES = Path(__file__).parents[1] / "templates"
FIGURE = re.compile(r"^!\[([^\]\n]*)\]\(\.\./figures/(\w+)\.svg\)$|\Z", re.MULTILINE)
MARKDOWN = (
    MarkdownIt("commonmark", {"html": False}).enable("table").disable(["link", "image", "autolink", "html_inline"])
)


def main(tables: list[str], documents: list[str], figures: list[str], run: str | None, page: str) -> None:
    """Writes the page. It begins with `run`, which is None in grids without steps."""
    frames = read_tables(tables)
    runs = frames["runs"]
    leaves = list_leaves(frames["kernels"], run) if run else []
    sections = [read_section(Path(document)) for document in documents]
    environment = html_environment(TEMPLATES)
    environment.filters["markdown"] = lambda text: Markup(MARKDOWN.renderInline(text))
    advice = []  # the findings of the run's own capture that save most
    if run:
        found = frames["time_lost"].query("run == @run and not abstained and gain_percent > 0")
        advice = found.sort_values("gain_percent", ascending=False).head(3).to_dict("records")
    contents = [("summary", "Summary"), *((section["name"], section["question"]) for section in sections)]
    text = environment.get_template("grid.html.j2").render(
        machine=Markup(MARKDOWN.renderInline(describe_machine(runs))),
        contents=[*contents, ("step", "Inside a step")] if leaves else contents,
        sections=sections,
        figures={Path(path).stem: base64.b64encode(Path(path).read_bytes()).decode() for path in figures},
        missing=list_missing(runs),
        run=run,
        run_name=describe_run(runs, run) if run else None,
        speed=measure_speed(frames, run) if run else None,
        advice=advice,
        rows=step_rows(leaves),
        flame=flame(leaves),
    )
    write_text(text, Path(page))


def read_section(document: Path) -> dict:
    """A document: its name, its question, its answer, why and what to do, its figure and what that shows, the rest."""
    question, lead, reasons, rest = (document.read_text(encoding="utf-8").strip() + 2 * "\n\n").split("\n\n", 3)
    shows, figure = FIGURE.search(rest).groups()
    reasons, rest = (Markup(MARKDOWN.render(FIGURE.sub("", part)).strip()) for part in (reasons, rest))
    names = {"name": document.stem, "question": question[2:], "figure": figure, "shows": shows}
    return names | {"lead": lead, "reasons": reasons, "rest": rest}


def list_leaves(kernels: pd.DataFrame, run: str) -> list[Leaf]:
    """The time of each kernel in each range of a step of the run, mean of the captured ones."""
    kernels = kernels[(kernels["step"] >= 0) & (kernels["run"] == run)]
    keys = ["phase", "range", "kernel", "class"]
    kernels = kernels.assign(**{key: kernels[key].astype("object").fillna("").astype(str) for key in keys})
    sums = kernels.groupby(keys, sort=False)[["total_ns", "launches"]].sum() / kernels["step"].nunique()
    return [
        Leaf((phase, *names_in(path)), kernel, kernel_class, total_ns / 1e6, launches)
        for phase, path, kernel, kernel_class, total_ns, launches in sums.reset_index().itertuples(index=False)
    ]


def measure_speed(frames: dict[str, pd.DataFrame], run: str) -> dict:
    """Milliseconds of a step without a profiler, tokens per second, and the share of the peak FLOP/s of the data sheet
    that its model FLOPs reach (a training step has those of three forward passes), as far as these are known."""
    row = frames["runs"].astype({"forward_flops": "float64"}).set_index("run").loc[run]
    seconds = frames["timings"].query("run == @run and phase == 'step'")["mean_ms"].sum(min_count=1) / 1e3
    flops = row["forward_flops"] * (1 if row["mode"] == "forward" else 3)
    speed = {
        "ms": 1e3 * seconds,
        "tokens_per_s": row["batch_size"] * row["context_length"] / seconds,
        "of_peak": flops / seconds / peak_flop_per_s(row["device_name"], row["precision"]),
    }
    return {name: value for name, value in speed.items() if pd.notna(value)} | {"precision": row["precision"]}


if "snakemake" in globals():
    given = snakemake.input
    main(given.tables, given.documents, given.figures, snakemake.params.run, snakemake.output.page)
