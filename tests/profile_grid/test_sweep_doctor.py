"""What the doctor says of an attention sweep, and what it reckons one will take, held against rows of an H200."""

import json
from dataclasses import asdict, replace

import pandas as pd
import pytest

from docs.examples import SWEEP_EXAMPLE
from profile_grid.measuring import sweep_estimates as estimates
from profile_grid.measuring.sweep_doctor import SweepSmoke, report, smoke_specification
from profile_grid.planning.doctor import cause
from tests.profile_grid.test_doctor import GPU_HOST, LAPTOP, ON_CPU, ON_H200, said
from tests.profile_grid.test_sweep import GIB, MACHINE, made, row

SMOKE = SweepSmoke(ON_H200, 3.8)
VARIANT = ("precision", "attention", "compile", "head_dim")
CELLS, ROWS = (pd.read_parquet(SWEEP_EXAMPLE / f"tables/{name}.parquet") for name in ("attention_sweep", "sweep_rows"))


def planned(name: str = "one", lengths=(1024, 16384), **dimensions) -> dict:
    plain = {"precision": "fp32", "batch_size": 8, "compile": "off", "attention": "eager", "head_dim": 64} | dimensions
    program = {"run": name, "dimensions": plain, "context_lengths": list(lengths), "device": "auto"}
    told = {"program": program | {"warmup_passes": 5, "measured_passes": 100}, "environment": []}
    return {"run": name, **plain, "context_lengths": list(lengths), "specification": told}


def of_example(line: dict) -> dict:
    lengths = [int(one) for one in CELLS[CELLS["run"] == line["run"]]["context_length"]]
    return planned(line["run"], lengths, **{key: line[key] for key in VARIANT})


def lines(plan: list[dict], host=GPU_HOST, smoke=SMOKE, folder=SWEEP_EXAMPLE / "no rows"):
    device = smoke.machine and smoke.machine["device_name"]
    left, pace = estimates.remaining(plan, folder), estimates.pace(folder, smoke.seconds, device)
    return report(host, smoke, {"grid": "g", "rows": plan}, left, pace)


def test_the_estimate_of_the_rows_that_were_measured_on_an_h200_is_what_they_took():
    done = ROWS[ROWS["run"].isin(CELLS[CELLS["status"] == "complete"]["run"])].to_dict("records")
    pace = estimates.pace(SWEEP_EXAMPLE / "no rows", 3.0, "NVIDIA H200")
    seconds, whole = estimates.seconds_needed([of_example(line) for line in done], pace, 139 * GIB)
    assert whole and seconds == pytest.approx(sum(line["seconds"] for line in done), rel=0.1)
    for line in done:
        assert estimates.seconds_needed([of_example(line)], pace, 139 * GIB)[0] < 2 * line["seconds"], line["run"]


def test_the_estimate_of_memory_is_what_the_longest_cells_held_on_an_h200_to_a_tenth():
    written_out = CELLS[CELLS["variant"].isin(["eager", "compiled"]) & (CELLS["context_length"] == 16384)]
    assert len(written_out) == 16
    for cell in written_out.to_dict("records"):
        row = planned(**{key: cell[key] for key in VARIANT})
        assert estimates.needed_bytes(row, 16384) == pytest.approx(cell["peak_bytes"], rel=0.1), cell["run"]


def test_a_sweep_has_five_lines_which_say_what_does_not_fit_and_how_long_it_takes():
    found = lines([planned("short"), planned("long", [65536])])
    assert [line.topic for line in found] == ["GPU", "torch", "smoke", "memory", "time"] and cause(found) is None
    assert "long needs about" in said("memory", found).text
    assert said("memory", found).text.endswith("1 of 2 rows will end as out of memory: long")
    assert said("time", found).text.startswith("grid g: 2 rows, 0 of them there; the others take about ")


def test_where_no_pace_is_known_the_time_is_a_least_one_and_a_failed_pass_is_named():
    found = lines([planned()], LAPTOP, SweepSmoke(ON_CPU, 4.0))
    assert "the others take at least 4 s" in said("time", found).text
    failed = lines([planned()], LAPTOP, SweepSmoke(None, 4.0, "ModuleNotFoundError: torch"))
    assert cause(failed).text.endswith("which failed: ModuleNotFoundError: torch")


def test_rows_that_are_there_are_not_measured_again_and_tell_the_pace(tmp_path):
    there, other = planned("there"), planned("other")
    cell = made(2.0, 1024)
    result = asdict(replace(row(cell), specification=there["specification"]))
    (tmp_path / "there").mkdir()
    (tmp_path / "there/sweep.json").write_text(json.dumps(result))
    assert estimates.remaining([there, other], tmp_path) == [other]
    pace = estimates.pace(tmp_path, 1.0, MACHINE.device_name)
    assert pace.start_s == pytest.approx(5.0 - 0.018)
    assert pace.pass_seconds(there, estimates.scores_of(there, 2048)) == pytest.approx(4 * 0.006)
    assert "nothing is left to measure" in said("time", lines([there], folder=tmp_path)).text


def test_the_smoke_is_one_pass_of_a_little_operator_that_is_written_out():
    program = smoke_specification([planned(attention="flash", precision="bf16")])["program"]
    assert (program["dimensions"]["attention"], program["dimensions"]["batch_size"]) == ("eager", 1)
    assert (program["context_lengths"], program["measured_passes"]) == ([16], 1)
