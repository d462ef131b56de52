"""Two captures compared: what is the same is left out, what differs is named."""

from pathlib import Path

import pandas as pd
import pytest

from kernel_tables.__main__ import main
from kernel_tables.comparison import changes, side_of
from kernel_tables.trace import Trace
from tests.kernel_tables.diagnosis.program import ADAM, GEMM, MUL, Program

CAPTURES = Path(__file__).parents[1] / "captures"
SCATTER = (0, 2, -1, 1, -2)  # µs, by step


def training(gemm: float = 1000, extra: str | None = None, muls: int = 2, noise: int = 1) -> Program:
    program = Program()
    for scatter in SCATTER:
        with program.range("step"):
            with program.range("forward"):
                program.pause(1)
                with program.range("norm"):
                    for _ in range(muls):
                        program.launch(MUL, 100 + noise * scatter)
            with program.range("backward"):
                program.launch(GEMM, gemm + noise * scatter)
                if extra:
                    program.launch(extra, 50)
    return program


def changed(one: Program, other: Program, folder: Path, **options) -> set[tuple[str, str, str]]:
    sides = []
    for program in (one, other):
        with Trace(program.capture.write(folder / "capture.sqlite")) as trace:
            sides.append(side_of(trace))
    return {(change.level, change.name, change.change) for change in changes(*sides, **options).itertuples()}


def test_a_program_differs_from_itself_in_nothing_though_its_times_scatter(tmp_path):
    assert changed(training(), training(noise=-1), tmp_path) == set()


def test_a_kernel_that_is_three_percent_slower_is_named_with_its_phase_part_and_class(tmp_path):
    assert changed(training(), training(gemm=1030), tmp_path) == {
        ("phase", "backward", "time"),
        ("part", "backward", "time"),
        ("class", "gemm", "time"),
        ("kernel", GEMM, "time"),
    }
    assert changed(training(), training(gemm=1030), tmp_path, tolerance=0.05) == set()


def test_what_appeared_is_gone_or_is_launched_more_often_is_told(tmp_path):
    more = changed(training(), training(extra=ADAM), tmp_path)
    assert {("kernel", ADAM, "appeared"), ("phase", "backward", "count")} <= more
    assert ("kernel", ADAM, "gone") in changed(training(extra=ADAM), training(), tmp_path)
    assert ("part", "norm", "count") in changed(training(), training(muls=3), tmp_path)


def test_a_change_that_the_steps_scatter_as_much_as_is_none(tmp_path):
    assert changed(training(noise=20), training(gemm=1030, noise=20), tmp_path) == set()


def test_changes_of_kernels_add_up_to_those_of_phases(tmp_path):
    sides = []
    for program in (training(), training(gemm=1100, extra=ADAM)):
        with Trace(program.capture.write(tmp_path / "capture.sqlite")) as trace:
            sides.append(side_of(trace))
    more = changes(*sides, everything=True).groupby("level")["ms_more"].sum()
    assert more[["phase", "part", "class", "kernel"]].tolist() == pytest.approx([0.15] * 4)


def test_captures_of_one_program_by_two_versions_of_nsys_differ_in_the_version_alone(tmp_path):
    one, other = (str(CAPTURES / f"tiny_{version}.sqlite.gz") for version in ("2025.3.1", "2024.2.3"))
    assert main(["diff", one, other, "-o", str(tmp_path / "diff.csv")]) == 1
    table = pd.read_csv(tmp_path / "diff.csv")
    assert table[["level", "name"]].to_numpy().tolist() == [["fact", "nsys"], ["fact", "schema"]]


def test_the_status_tells_whether_anything_differs_and_of_bad_input(tmp_path, capfd):
    path = str(training().capture.write(tmp_path / "capture.sqlite"))
    assert main(["diff", path, path]) == 0
    assert main(["diff", path, str(tmp_path / "absent.sqlite")]) == 2
    assert "absent.sqlite" in capfd.readouterr().err
