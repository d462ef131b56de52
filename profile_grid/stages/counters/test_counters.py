"""The stage counters under a fake ncu (tests/fakes), and the tables from its counters and a capture."""

import json
import os
import shutil
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from kernel_tables.counters.joining import NOT_PROFILED
from kernel_tables.counters.metrics import DRAM_BYTES, INSTRUCTIONS, METRICS, STALLS, TENSOR_OPERATIONS
from kernel_tables.counters.reading import no_counters, read_kept_counters
from kernel_tables.trace import Trace
from profile_grid.host.leases.lease_server import Leases
from profile_grid.host.processes import measured_program
from profile_grid.host.processes.job import Job
from profile_grid.results.capture_identity import file_identity, write_specification
from profile_grid.results.results import read_result
from profile_grid.stages.counters import measure as counters
from profile_grid.stages.counters.tables import LEFT_OUT, TABLES, measured_launches, run_tables, tables_of_launches
from profile_grid.study.runs import grid_runs
from profile_grid.study.schema import ConfigError
from profile_grid.study.stages import COUNTERS
from profile_grid.tables.findings import FINDINGS
from tests.kernel_tables.synthetic import Synthetic
from tests.profile_grid.made_up_results import CAPTURE, changed

ROOT = Path(__file__).parents[3]
FAKES = ROOT / "tests" / "fakes"
PRINTED = ROOT / "tests" / "captures" / "ncu_2025.3.1.csv"  # what the fake ncu prints
PROGRAM = {
    "run": "tiny_ctx8_forward", "constructor": "elsewhere:Model", "device": "auto", "measured_steps": 1,
    "sizes": {"num_layers": 12, "d_model": 8}, "dimensions": {"compile": "off", "gpus": 1},
}  # fmt: skip
ROOFS = {"memory": 1e9, "fp32": 1e12, "tf32": 2e12, "bf16": 4e12, "fp16": None}
FFMA, (READ, WRITTEN) = INSTRUCTIONS["ffma"], DRAM_BYTES  # names of metrics


@pytest.fixture
def run_counters(tmp_path, monkeypatch):
    """A function that runs the stage with fakes of ncu and of the program, which behave in the given manners, and
    returns the content of counters.json. Its attribute `commands` returns the command lines of the fake ncu."""
    fakes = tmp_path / "bin"
    fakes.mkdir()
    text = (FAKES / "ncu").read_text().replace("/usr/bin/env python3", sys.executable)
    (fakes / "ncu").write_text(text)
    (fakes / "ncu").chmod(0o755)
    shutil.copy(PRINTED, fakes / "table")
    roofs = {"status": "complete", "rates": ROOFS}
    (tmp_path / "fake_roofs.py").write_text(
        f"import sys; open(sys.argv[sys.argv.index('--output') + 1], 'w').write({json.dumps(roofs)!r})"
    )
    monkeypatch.setenv("PATH", f"{fakes}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (FAKES, tmp_path, ROOT))))
    monkeypatch.setattr(measured_program, "BENCHMARK", "fake_program")
    monkeypatch.setattr(counters, "ROOFS_PROGRAM", "fake_roofs")
    monkeypatch.setattr(counters, "gpu_is_visible", lambda: True)
    monkeypatch.setattr(counters.nsys, "find", lambda: fakes / "nsys")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").mkdir()

    def run(manner="works", program="ends well", **changes):
        (fakes / "manner").write_text(manner)
        (tmp_path / "program").write_text(program)
        shutil.rmtree("scratch", ignore_errors=True)
        os.mkdir("scratch")
        specification = {"program": PROGRAM | changes, "environment": [], "layers": 2}
        job = Job(specification, Path("results"), Path("scratch"), Path("counters.log"), 20.0, Leases())
        return counters.measure(job)

    run.commands = lambda: (fakes / "commands").read_text().splitlines() if (fakes / "commands").exists() else []
    return run


def test_all_kernels_and_further_matrix_multiplies_are_counted_in_a_process_each_and_the_roofs_beside(run_counters):
    result = run_counters()
    assert (result["status"], result["facts"]["ncu"], result["facts"]["roofs"]) == ("complete", "2099.1.1.0", ROOFS)
    kept = read_kept_counters(Path("results/ncu.csv"))  # the fake prints all ten kernels in both rounds
    assert len(kept) == 10 and kept[list(STALLS.values())].notna().all(axis=None)
    assert kept[TENSOR_OPERATIONS["bf16"]].gt(0).tolist() == [False] * 6 + [True] * 3 + [False]
    assert len(run_counters.commands()) == 2 and all("--profiler ncu" in command for command in run_counters.commands())
    patterns = [command.split("--kernel-name ")[1].split()[0] for command in run_counters.commands()]
    commands = dict(zip(patterns, run_counters.commands(), strict=True))
    all_kernels, matmuls = (commands[pattern] for pattern in sorted(patterns, key=lambda pattern: "gemm" in pattern))
    assert '"num_layers": 2' in all_kernels and '"num_layers": 1' in matmuls
    kept_text = Path("results/ncu.csv").read_text()
    assert "gpu-node-17" not in kept_text and "python3.12" not in kept_text and str(Path.cwd()) not in kept_text


@pytest.mark.parametrize(
    ("changes", "layers"),
    [
        ({}, 2),
        ({"sizes": {"num_layers": 1}}, 1),
        ({"sizes": {"depth": 12}}, None),
        ({"dimensions": {"compile": "on", "gpus": 1}}, 12),  # a graph of all blocks
        ({"dimensions": {"compile": "off", "gpus": 2}}, 12),  # buckets of all gradients
    ],
)
def test_a_model_of_many_layers_is_counted_with_few_unless_its_kernels_would_be_others(changes, layers):
    specification = {"program": PROGRAM | changes, "environment": [], "layers": 2}
    job = Job(specification, Path("results"), Path("scratch"), Path("counters.log"), 20.0, Leases())
    program = counters.with_layers(job, 2).program
    assert program["sizes"].get("num_layers") == layers and program["run"] == PROGRAM["run"]
    assert PROGRAM["sizes"]["num_layers"] == 12  # the specification of the run is not changed


@pytest.mark.parametrize(
    ("manner", "status", "code", "reason"),
    [
        ("lacks permission", "unsupported", "no_permission", "NVreg_RestrictProfilingToAdminUsers=0"),
        ("cuts its table", "incomplete", "no_table", "no table that can be read"),
        ("ends early", "incomplete", "ncu_ended_early", "exit status 9 before the program"),
    ],
)
def test_what_ncu_refuses_or_fails_at_is_told_in_our_own_words_and_not_tried_twice(
    run_counters, manner, status, code, reason
):
    result = run_counters(manner)
    assert (result["status"], result["reason_code"]) == (status, code) and reason in result["reason"]
    assert "anna" not in json.dumps(result) and "gpu-node-17" not in json.dumps(result)
    assert len(run_counters.commands()) <= 2 and read_kept_counters(Path("results/ncu.csv")).empty


def test_the_rounds_start_together_and_one_that_is_not_whole_ends_the_others(run_counters):
    assert run_counters("waits for the other round")["status"] == "complete"
    assert {path.name for path in Path().glob("*.log")} == {f"counters{end}.log" for end in ("", "_round-1", "_roofs")}
    started = time.monotonic()
    result = run_counters("ends early, and hangs in the further round")
    assert result["reason_code"] == "ncu_ended_early" and time.monotonic() - started < 15


def test_a_program_without_matrix_multiplies_is_counted_without_them(run_counters):
    assert run_counters("finds no further matrix multiplies")["status"] == "complete"
    assert len(read_kept_counters(Path("results/ncu.csv"))) == 10
    result = run_counters("counts nothing")
    assert (result["status"], result["reason_code"]) == ("incomplete", "no_counters")


def test_without_a_gpu_nsys_or_ncu_nothing_is_run_and_the_remedy_is_told(run_counters, monkeypatch):
    assert run_counters(device="cpu")["reason_code"] == "no_gpu"
    monkeypatch.setattr(counters.nsys, "find", lambda: None)
    unjoined = run_counters()
    assert (unjoined["status"], unjoined["reason_code"], unjoined["program"]) == ("unsupported", "nsys_missing", None)
    assert "install Nsight Systems" in unjoined["reason"]
    monkeypatch.setattr(counters.nsys, "find", lambda: Path("nsys"))
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable))
    missing = run_counters()
    assert (missing["status"], missing["reason_code"], missing["program"]) == ("unsupported", "ncu_missing", None)
    assert "install Nsight Compute" in missing["reason"] and run_counters.commands() == []


def test_a_program_out_of_memory_is_a_result_and_one_that_crashes_has_no_counters(run_counters):
    assert run_counters(program="runs out of memory")["status"] == "out_of_memory"
    crashed = run_counters(program="crashes")
    assert (crashed["status"], crashed["reason_code"]) == ("incomplete", "crashed")
    assert "the program crashed under ncu" in crashed["reason"] and "defect" not in json.dumps(crashed)


PRODUCT = {"models": ["tiny"], "context_lengths": [64], "modes": ["forward", "train_step"]}
ON_TWO_GPUS = {"models": ["tiny"], "context_lengths": [64], "modes": ["train_step"], "gpus": [2], "parallels": ["ddp"]}


def runs_with_counters(*products: dict, **changes) -> list[str]:
    """The names of the runs, in a grid of these products, whose kernels are counted."""
    config = {"grid": "g", "grids": {"g": list(products)}, "models": {"tiny": {}}, "program": {"constructor": "a:B"}}
    return [name for name, run in grid_runs(config | changes).items() if COUNTERS in run.stages]


def test_the_run_that_the_page_shows_is_asked_for_counters_unless_a_pattern_of_names_asks_others():
    fullest_mode = ["tiny_ctx64_train_step"]
    assert runs_with_counters(PRODUCT) == runs_with_counters(PRODUCT, counters={"layers": 1}) == fullest_mode
    assert runs_with_counters(PRODUCT | {"modes": ["forward"]}, counters={"runs": "shown"}) == ["tiny_ctx64_forward"]
    assert runs_with_counters(PRODUCT, counters={"runs": "*_forward"}) == ["tiny_ctx64_forward"]
    assert runs_with_counters(PRODUCT, counters={"runs": ""}) == []
    assert len(runs_with_counters(PRODUCT | {"stages": ["counters"]}, counters={"runs": ""})) == 2


def test_where_the_page_shows_a_run_on_several_gpus_one_on_one_gpu_is_asked():
    both = [PRODUCT | {"modes": ["forward"]}, ON_TWO_GPUS]
    assert runs_with_counters(*both) == runs_with_counters(*both, counters={"runs": "shown"}) == ["tiny_ctx64_forward"]


def test_a_grid_on_several_gpus_alone_has_no_counters_and_is_an_error_only_where_somebody_chose_that_run():
    assert runs_with_counters(ON_TWO_GPUS) == runs_with_counters(ON_TWO_GPUS, counters={"layers": 1}) == []
    with pytest.raises(ConfigError, match=r"^counters\.runs: 'shown' is a run on one GPU, and grids\.g has none; add"):
        runs_with_counters(ON_TWO_GPUS, counters={"runs": "shown"})


def made_up_capture(*kernels: tuple[str, int, tuple[int, int, int]]) -> Synthetic:
    """Two measured steps of a forward pass: a matrix multiply in `head`; these (name, duration, grid) in `norm`."""
    capture = Synthetic().range("measure", 0, 2_000_000)
    for start in (1000, 1_000_000):
        capture.range("step", start, start + 900_000).range("forward", start + 10, start + 800_000)
        capture.range("head", start + 20, start + 100).kernel(
            "sgemm", at=start + 30, duration=10_000, grid=(4, 1, 1), block=(128, 1, 1)
        )
        capture.range("norm", start + 200, start + 400)
        for number, (name, duration, grid) in enumerate(kernels):
            capture.kernel(name, at=start + 210 + number, duration=duration, grid=grid, block=(64, 1, 1))
    return capture


def row(kernel: str, grid: str, block: str, **metrics: float) -> dict:
    """A row of counters; metrics that are not given are 0."""
    return {"kernel": kernel, "grid": grid, "block": block, **dict.fromkeys((m.name for m in METRICS), 0.0), **metrics}


COUNTED = pd.DataFrame(
    [
        row("sgemm", "4x1x1", "128x1x1", **{FFMA: 3e6, READ: 4000.0, "gpu__time_duration.sum": 10_000.0}),
        row("add", "2x1x1", "64x1x1", **{READ: 600.0, WRITTEN: 300.0}),
    ],
    columns=no_counters().columns,
)
RESULT = SimpleNamespace(
    facts={"roofs": ROOFS}, program=SimpleNamespace(machine=SimpleNamespace(device_name="NVIDIA H200"))
)


def tables_of(capture: Synthetic, folder: Path) -> tuple[dict, dict[str, pd.DataFrame]]:
    with Trace(capture.write(folder / "capture.sqlite")) as trace:
        return tables_of_launches(measured_launches(trace), COUNTED, RESULT)


def test_every_launch_has_its_time_from_the_capture_and_its_work_from_the_counters(tmp_path):
    status, tables = tables_of(made_up_capture(("add", 1000, (2, 1, 1)), ("add", 3000, (2, 1, 1))), tmp_path)
    assert status == {"status": "complete", "reason": None, "warnings": []}
    first, second = tables["counters"].to_dict("records")
    assert (first["kernel"], first["launches"], first["total_ns"]) == ("sgemm", 2, 20_000)
    assert (first["flops"], first["compute_share"], first["verdict"]) == (6e6, pytest.approx(0.6), "compute")
    assert (second["launches"], second["min_ns"], second["max_ns"]) == (4, 1000, 3000)
    assert (second["dram_bytes"], second["memory_share"]) == (900.0, pytest.approx(900 / 1e9 / 2e-6))
    ranges = tables["counter_ranges"].set_index(["step", "phase", "range", "class"])
    assert ranges.loc[(1, "forward", "norm"), ["launches", "total_ns", "dram_bytes"]].iloc[0].tolist() == [
        2,
        4000,
        1800,
    ]
    assert ranges["total_ns"].sum() == ranges["counted_ns"].sum() == 2 * 14_000
    roofs = tables["roofs"].set_index("roof")
    assert roofs.loc["memory", ["data_sheet_per_s", "reached_per_s"]].tolist() == [4.8e12, 1e9]
    assert pd.isna(roofs.loc["fp16", "reached_per_s"])


def test_what_a_gpu_does_not_count_of_a_launch_is_missing_in_the_sums_of_its_range(tmp_path):
    with Trace(made_up_capture(("add", 1000, (2, 1, 1))).write(tmp_path / "capture.sqlite")) as trace:
        counted = COUNTED.assign(**{READ: COUNTED[READ].mask(COUNTED["kernel"] == "add")})
        _, tables = tables_of_launches(measured_launches(trace), counted, RESULT)
    ranges = tables["counter_ranges"].set_index("range")
    assert ranges.loc["norm", "dram_bytes"].isna().all() and ranges.loc["head", "dram_bytes"].notna().all()
    assert ranges["counted_ns"].eq(ranges["total_ns"]).all() and ranges["fp32_flops"].notna().all()


def test_a_join_that_loses_more_than_one_percent_of_the_time_is_incomplete_and_names_what_it_lost(tmp_path):
    kernels = ("add", 1000, (2, 1, 1)), ("mul", 100, (9, 1, 1))
    status, tables = tables_of(made_up_capture(*kernels), tmp_path)
    assert status["status"] == "complete" and "1 kernel configuration without counters" in status["warnings"][0]
    assert tables["counters"]["not_counted"].tolist() == ["", "", NOT_PROFILED]
    ranges = tables["counter_ranges"]
    assert (ranges["total_ns"] - ranges["counted_ns"]).sum() == 200
    status, tables = tables_of(made_up_capture(("add", 1000, (2, 1, 1)), ("mul", 900, (9, 1, 1))), tmp_path)
    assert status["status"] == "incomplete" and tables == {}
    assert "1 of 3 kernel configurations have no counters, 7.6 %" in status["reason"]
    assert "the longest is mul, grid 9x1x1, block 64x1x1: not profiled" in status["reason"]


def test_the_kernels_of_nccl_are_left_out_and_lose_nothing(tmp_path):
    status, tables = tables_of(
        made_up_capture(("ncclDevKernel_AllReduce_Sum_f32(ncclArgs)", 50_000, (8, 1, 1))), tmp_path
    )
    assert status["status"] == "complete" and status["warnings"] == []
    assert tables["counters"]["not_counted"].tolist() == [LEFT_OUT, ""]


@pytest.fixture
def run_folder(tmp_path):
    """A function that writes the changed results of a run's counters and capture, and returns its tables' status."""
    sqlite = made_up_capture(("add", 1000, (2, 1, 1))).write(tmp_path / "capture.sqlite")
    write_specification(sqlite, CAPTURE["specification"])
    COUNTED.to_csv(tmp_path / "ncu.csv", index=False)

    def status(counters_changes=None, damaged=None, **capture_changes) -> dict:
        of_counters = {"files": {"ncu.csv": file_identity(tmp_path / "ncu.csv")}, "facts": {"ncu": "1", "roofs": ROOFS}}
        nsys_facts = CAPTURE["facts"] | {"backend": "nsys"}
        of_capture = {"files": {"capture.sqlite": file_identity(sqlite)}, "facts": nsys_facts}
        (tmp_path / "counters.json").write_text(json.dumps(changed(CAPTURE | of_counters, **(counters_changes or {}))))
        (tmp_path / "capture.json").write_text(json.dumps(changed(CAPTURE | of_capture, **capture_changes)))
        if damaged:
            (tmp_path / damaged).write_bytes((tmp_path / damaged).read_bytes()[:-1])
        return run_tables(read_result(tmp_path / "counters.json"), tmp_path)[0]

    return status


def test_counters_are_joined_to_the_capture_of_the_same_run_and_to_no_other(run_folder):
    assert run_folder()["status"] == "complete"
    other = run_folder(facts__backend="torch")
    assert other["status"] == "unsupported" and "PyTorch's profiler" in other["reason"]
    lost = run_folder(status="incomplete", reason="no kernels", program=None)
    assert (lost["status"], lost["reason"]) == ("incomplete", "its capture is incomplete")
    ran_out = run_folder(status="out_of_memory", program=None)
    assert (ran_out["status"], ran_out["reason"]) == ("out_of_memory", None)
    refused = run_folder({"status": "unsupported", "reason": "no counters: why", "program": None})
    assert (refused["status"], refused["reason"]) == ("unsupported", "no counters: why")
    for file in ("capture.sqlite", "ncu.csv"):
        assert f"{file} has" in run_folder(damaged=file)["reason"]


def test_the_rules_that_need_counters_say_what_they_find_in_a_table_of_their_own(run_folder, tmp_path):
    run_folder()
    table = run_tables(read_result(tmp_path / "counters.json"), tmp_path)[1]["counter_findings"]
    assert list(table.columns) == FINDINGS.names and table.empty  # no kernel there fills the GPU


def test_a_run_without_counters_has_the_same_columns_as_one_with_them(tmp_path):
    tables = tables_of(made_up_capture(("add", 1000, (2, 1, 1))), tmp_path)[1]
    assert set(tables) == {declared.name for declared in TABLES}
    for name, empty in ((declared.name, declared.empty()) for declared in TABLES):
        assert list(tables[name].columns) == list(empty.columns)
        numbers = [column for column in empty if pd.api.types.is_numeric_dtype(empty[column])]
        assert [column for column in tables[name] if pd.api.types.is_numeric_dtype(tables[name][column])] == numbers
