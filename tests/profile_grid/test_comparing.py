"""Two results of a grid side by side: verdicts, what differs, what changed, and the exit status."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from profile_grid.comparing.cells import cells, changes, energies, facts_that_differ
from profile_grid.comparing.document import document, memory_section, sections, summary
from profile_grid.comparing.figure import FIGURE
from profile_grid.comparing.outputs import comparison, page
from profile_grid.comparing.results import Results, read_results, sides_of_study
from profile_grid.errors import OutsideError
from profile_grid.figures import paper
from profile_grid.files import write_json, write_table
from profile_grid.study.dimensions import BY_KEY
from tests.profile_grid.made_up import GEMM, Kernel, Made, forward_kernels, merged
from tests.profile_grid.made_up_results import TIMING, changed
from workflow.scripts.compare import FailingVerdict, main

PROVENANCE = {"driver": "580", "torch": "2.11", "config_sha256": "aa", "device_name": "NVIDIA H200"}


def steps_of(runs: list[Made], processes: int, slower: dict[str, float], seed: int) -> pd.DataFrame:
    """Ten steps of each process: processes scatter by 0.3 percent, their steps by one."""
    random, rows = np.random.default_rng(seed), []
    for run in runs:
        for process in range(1, processes + 1):
            ms = run.unprofiled_ms * slower.get(run.model, 1.0) * random.normal(1, 0.003)
            rows += [
                {**run.leading, "process": process, "phase": "step", "step": step, "ms": ms * random.normal(1, 0.01)}
                for step in range(10)
            ]
    return pd.DataFrame(rows)


def written(folder: Path, runs: list[Made], processes=6, slower=(), seed=1, **provenance):
    """Results with these runs, in a folder."""
    tables = merged(runs)
    steps = steps_of(runs, processes, dict(slower), seed)
    tables["steps"] = steps[steps["process"] == 1].drop(columns="process")
    for name in ("runs", "steps", "kernels"):
        write_table(folder / "tables" / f"{name}.csv", tables[name])
    if processes > 1:
        write_table(folder / "processes" / "steps.csv", steps[steps["process"] > 1])
    write_json(folder / "tables" / "provenance.json", PROVENANCE | provenance)
    return read_results(folder)


def document_of(before, after) -> str:
    return document(comparison(before, after))


def with_energy(folder: Path, runs: list[Made], joules: float) -> Results:
    """The results with an energy of so many joules for each of these runs, give or take one percent."""
    columns = [*three()[0].leading, "counter"]
    table = pd.DataFrame([run.leading | {"counter": "NVML"} for run in runs], columns=columns)
    figures = {"joules_per_step": joules, "joules_per_step_std": 0.01 * joules}
    write_table(folder / "tables" / "energy.csv", table.assign(**figures))
    rows = pd.read_parquet(folder / "tables" / "runs.parquet")
    asked = rows["run"].isin(table["run"])
    write_table(
        folder / "tables" / "runs.csv", rows.assign(energy_status=asked.map({True: "complete", False: "not_asked"}))
    )
    return read_results(folder)


def three(**changes) -> list[Made]:
    return [Made(model=model, kernels=forward_kernels(), **changes) for model in ("small", "large", "2.7B")]


def verdicts(before, after) -> dict[str, str]:
    return dict(cells(before, after)[["model", "verdict"]].itertuples(index=False, name=None))


def test_a_cell_that_is_three_percent_slower_is_told_and_the_others_are_not(tmp_path):
    before = written(tmp_path / "before", three())
    after = written(tmp_path / "after", three(), slower={"large": 1.03}, seed=2)
    assert verdicts(before, after) == {"small": "unclear", "large": "slower", "2.7B": "unclear"}
    assert verdicts(after, before)["large"] == "faster"
    row = cells(before, after).set_index("model").loc["large"]
    assert row["ratio_low"] < 1.03 < row["ratio_high"]


def test_below_six_processes_a_side_nothing_is_told(tmp_path):
    before = written(tmp_path / "before", three(), processes=5)
    after = written(tmp_path / "after", three(), slower={"large": 2.0}, seed=2)
    table = cells(before, after)
    assert set(table["verdict"]) == {"too few processes to tell"} and table["ratio_low"].isna().all()
    assert "6 processes per side are needed: `timing: {processes: 6}`" in summary(table)[-1]


def test_what_cannot_be_compared_says_why(tmp_path):
    small, large, _ = three()
    oom = Made(model="2.7B", timing_status="out_of_memory", capture_status="out_of_memory")
    before = written(tmp_path / "before", [small, large, oom])
    other = Made(model="large", kernels=forward_kernels(), machine=large.machine | {"device_name": "NVIDIA H100"})
    after = written(tmp_path / "after", [other, oom])
    reasons = cells(before, after).set_index("model")["reason"]
    assert reasons["small"] == "only before"
    assert reasons["large"] == "device_name is NVIDIA H200, then NVIDIA H100"
    assert reasons["2.7B"] == "out_of_memory before"


def test_facts_that_differ_come_first_and_changes_name_the_kernel(tmp_path):
    before = written(tmp_path / "before", three())
    kernels = (*forward_kernels(), Kernel("forward", "block > norm", "new_kernel", "elementwise", 3, 500.0))
    run = Made(model="small", kernels=kernels)
    after = written(tmp_path / "after", [run, *three()[1:]], seed=2, torch="2.12")
    assert facts_that_differ(before, after).to_numpy().tolist() == [["PyTorch", "2.11", "2.12"]]
    table = changes(before, after)
    assert set(table["run"]) == {run.name}
    assert table.set_index("name").loc["new_kernel", "change"] == "appeared"
    text = document_of(before, after)
    assert text.index("PyTorch") < text.index("## Times") < text.index("`new_kernel`")
    assert GEMM not in text


def test_the_energy_of_a_step_stands_beside_that_before_where_both_sides_counted_it(tmp_path):
    runs = three()
    for side, joules in (("before", 200.0), ("after", 150.0)):
        written(tmp_path / side, runs)
        with_energy(tmp_path / side, runs[:2] if side == "after" else runs, joules)
    before, after = (read_results(tmp_path / side) for side in ("before", "after"))
    table = energies(before, after)
    assert table["model"].tolist() == ["small", "large"]
    assert table["ratio"].tolist() == pytest.approx([0.75, 0.75])
    assert table["ratio_std"].tolist() == pytest.approx([0.75 * 0.01 * 2**0.5] * 2)
    text = document_of(before, after)
    assert text.index("## Times") < text.index("## Energy") < text.index("## What changed")
    assert "| 200 ± 2 | 150 ± 2 | × 0.750 ± 0.011 |" in " ".join(text.split())


def test_a_table_of_energy_without_rows_is_none(tmp_path):
    before, after = (with_energy(written(tmp_path / side, three()).folder, [], 1.0) for side in ("before", "after"))
    assert energies(before, after).empty


def test_results_that_were_timed_and_not_captured_can_be_compared(tmp_path):
    sizes = {"d_model": 8, "d_ff": 32, "num_layers": 1, "num_heads": 1}
    spec = TIMING["program"]["spec"] | {"constructor": "a:b", "arguments": {}, "sizes": sizes, "vocab_size": 10}
    runs = [Made(model=model).leading for model in ("small", "large")]
    for run, seconds in zip(runs, ([0.01, 0.02], [0.03, 0.03]), strict=True):
        made = changed(TIMING, program__spec=spec, program__step_seconds=seconds)
        write_json(tmp_path / "runs" / run["run"] / "timing.json", made)
    write_json(tmp_path / "grid.json", {"grid": "g", "runs": runs})
    side = read_results(tmp_path)
    table = cells(side, side)
    assert table["verdict"].tolist() == ["too few processes to tell"] * 2
    assert table["before_ms"].tolist() == pytest.approx([15, 30]) and table["ratio"].tolist() == [1, 1]
    assert changes(side, side).empty and side.provenance["stages"] == "timing"


def test_results_without_a_count_of_energy_have_no_section_of_it(tmp_path):
    before, after = written(tmp_path / "before", three()), written(tmp_path / "after", three())
    assert energies(before, after).empty and "## Energy" not in document_of(before, after)


def test_the_page_holds_the_tables_of_the_document_its_figure_and_no_html_of_a_name(tmp_path):
    before = written(tmp_path / "before", three())
    hostile = Kernel("forward", "block > norm", "<script>alert(1)</script>|x", "elementwise", 3, 500.0)
    after = written(tmp_path / "after", [Made(model="small", kernels=(*forward_kernels(), hostile)), *three()[1:]])
    tables = comparison(before, after)
    html = page(tables, after.tables["runs"], b"PNG")
    assert html.count("<table>") == document(tables).count("\n| :") == 2
    assert all(f'<section id="{section.anchor}">' in html for section in sections(tables))
    assert html.index('id="cells"') < html.index("base64,UE5H") < html.index("unclear</td>")
    assert 'name="viewport"' in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;|x" in html and "<script" not in html


def test_the_figure_has_a_line_for_every_cell_and_the_axis_holds_what_was_told(tmp_path):
    before = written(tmp_path / "before", three())
    after = written(tmp_path / "after", three(), slower={"large": 1.3}, seed=2)
    drawing = FIGURE.draw({"runs": after.tables["runs"], "cells": cells(before, after)})
    (panel,) = drawing.chart["hconcat"]
    points = drawing.chart["datasets"][panel["layer"][2]["data"]["name"]]
    assert [(row["line"], row["verdict"]) for row in points] == [
        ("small · 512", "unclear"), ("large · 512", "slower"), ("2.7B · 512", "unclear"),
    ]  # fmt: skip
    assert points[1]["ratio_drawn"] == pytest.approx(1.3, rel=0.01)
    low, high = panel["layer"][1]["encoding"]["x"]["scale"]["domain"]
    assert low * high == pytest.approx(1) and all(row["ratio_high"] < high for row in points)


def test_cells_without_times_are_a_figure_that_says_so(tmp_path):
    oom = [Made(model="2.7B", timing_status="out_of_memory", capture_status="out_of_memory")]
    before, after = (written(tmp_path / side, oom, processes=1) for side in ("before", "after"))
    tables = {"runs": after.tables["runs"], "cells": cells(before, after)}
    assert FIGURE.draw(tables).reason == "No run has times on both sides."


def test_the_summary_leads_with_the_largest_change_or_says_that_there_is_none(tmp_path):
    before = written(tmp_path / "before", three())
    after = written(tmp_path / "after", three(), slower={"large": 1.03, "small": 0.9}, seed=2)
    lead, counts, others = summary(cells(before, after))
    assert re.fullmatch(r"small at context 512, forward pass, is 9\.\d % faster \(.* % to .* %\)\.", lead)
    assert counts == "Of 3 runs: 1 faster, 1 slower and 1 unclear."
    assert others.startswith("Others that changed, after ÷ before: large at context 512, forward pass × 1.03")
    same = written(tmp_path / "same", three(), seed=3)
    lead = r"No change was detected in 3 runs; the interval of a ratio is ± \d\.\d % \(median; at most ± \d\.\d %\)\."
    assert re.fullmatch(lead, summary(cells(before, same))[0])


def test_the_kernel_that_changed_most_is_named_first(tmp_path):
    kernels = (*forward_kernels(), Kernel("forward", "block > norm", "new_kernel", "elementwise", 3, 500.0))
    before = written(tmp_path / "before", [Made(kernels=forward_kernels())])
    after = written(tmp_path / "after", [Made(kernels=kernels)], slower={"small": 1.05}, seed=2)
    assert "There, the kernel that changed most is `new`: 0 → 0.500 ms." in document_of(before, after)


def test_a_peak_of_memory_that_changed_is_shown_with_its_ratio(tmp_path):
    before, after = written(tmp_path / "before", three()), written(tmp_path / "after", three())
    table = cells(before, after).assign(peak_before_bytes=2.0**30, peak_after_bytes=[2.0**30, 2.0**31, None])
    said = memory_section(table)
    assert "changed by a MiB or more in 1 of 2 runs" in said
    assert "| large | 512     | forward pass |        1.00 |       2.00 | 2.000 |" in said
    assert memory_section(table.assign(peak_before_bytes=None)) == ""


def test_the_status_is_1_where_a_cell_is_what_the_caller_fails_on_and_all_is_written(tmp_path, capsys, monkeypatch):
    written(tmp_path / "before", three())
    written(tmp_path / "after", three(), slower={"large": 1.05}, seed=2)
    folders = {name: str(tmp_path / name) for name in ("before", "after")} | {"output": tmp_path / "out"}
    monkeypatch.setattr(paper, "drawn", lambda specification, suffix: b"drawn")  # a second, twice
    main(**folders, fail_on="faster")
    assert "1 slower" in capsys.readouterr().out
    with pytest.raises(FailingVerdict, match=r"1 of 3 runs are slower: large_ctx512_forward"):
        main(**folders, fail_on="slower")
    assert (
        (tmp_path / "out" / "comparison.md")
        .read_text()
        .startswith("# Before and after\n\nlarge at context 512, forward pass, is 5.")
    )
    written_too = ("cells.parquet", "comparison.html", "ratios.svg", "ratios.png")
    assert all((tmp_path / "out" / name).exists() for name in written_too)


def test_a_folder_without_results_is_refused_with_its_name(tmp_path):
    with pytest.raises(OutsideError, match=r"nowhere: no tables/runs\.parquet; name a folder of results"):
        read_results(tmp_path / "nowhere")
    with pytest.raises(OutsideError, match="before=DIR after=DIR"):
        main(after="x", output=tmp_path)


def test_what_an_earlier_grid_of_attention_left_beside_a_study_does_not_make_it_one(tmp_path):
    written(tmp_path, three(), processes=1)
    write_table(tmp_path / "tables" / "attention_sweep.csv", pd.DataFrame({"run": ["attention_d16"]}))
    assert len(read_results(tmp_path).runs) == 3


def test_runs_without_steps_are_refused_with_what_can_be_compared():
    with pytest.raises(
        OutsideError, match=r"attention-sweep: its runs have no steps to compare; name the results of a"
    ):
        read_results(Path(__file__).parents[2] / "docs/example-h200/attention-sweep")


def test_results_from_before_there_was_a_dimension_or_a_stage_are_compared_at_its_default(tmp_path):
    before, after = (written(tmp_path / side, three(), processes=1) for side in ("before", "after"))
    old = before.tables["runs"].drop(columns=["gpus", "parallel", "counters_status"])
    write_table(tmp_path / "before" / "tables" / "runs.csv", old)
    before = read_results(tmp_path / "before")
    assert cells(before, after)["gpus"].tolist() == [1, 1, 1]
    assert before.runs["large_ctx512_forward"]["counters_status"] == "not_asked"


def test_the_runs_of_a_study_are_compared_with_those_at_the_default_of_its_dimension(tmp_path):
    shared = {"kernels": forward_kernels(), "context_length": 512}
    fp32, bf16 = Made(model="large", **shared), Made(model="large", precision="bf16", unprofiled_ms=2.0, **shared)
    alone = Made(model="small", **shared)
    study = written(tmp_path / "study", [fp32, bf16, alone])
    before, after = sides_of_study(study, BY_KEY["precision"])
    (row,) = cells(before, after).to_dict("records")
    assert (row["run"], row["precision"], row["verdict"]) == (bf16.name, "bf16", "faster")
    assert row["ratio"] == pytest.approx(2.0 / fp32.unprofiled_ms, rel=0.01)
    assert facts_that_differ(before, after).to_numpy().tolist() == [["precision", "fp32", "bf16"]]
    with pytest.raises(OutsideError, match="no two runs differ only in compile, with one of them at off"):
        sides_of_study(study, BY_KEY["compile"])
    with pytest.raises(OutsideError, match=r"varies=model: there is no default .*; name one of .*precision"):
        sides_of_study(study, BY_KEY["model"])


def test_the_energy_of_a_study_is_compared_with_that_at_the_default(tmp_path):
    runs = [Made(model="large", kernels=forward_kernels(), precision=name) for name in ("fp32", "bf16")]
    written(tmp_path, runs)
    table = energies(*sides_of_study(with_energy(tmp_path, runs, 200.0), BY_KEY["precision"]))
    assert table[["run", "precision", "ratio"]].to_numpy().tolist() == [[runs[1].name, "bf16", 1.0]]
