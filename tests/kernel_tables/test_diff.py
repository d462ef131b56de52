"""Two captures compared: what is the same is left out, what differs is named."""

from pathlib import Path

import pandas as pd
import pytest

import kernel_tables
from kernel_tables.__main__ import main
from kernel_tables.diff import changes, side_of
from tests.kernel_tables.program import ADAM, GEMM, MUL, Program

CAPTURES = Path(__file__).parents[1] / "captures"


def training(gemm: float = 1000, extra: str | None = None, muls: int = 2, noise: int = 1) -> Program:
    program = Program()
    for scatter in (0, 2, -1, 1, -2):  # µs, by step
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


def differences(one: Program, other: Program, folder: Path, **options) -> pd.DataFrame:
    sides = []
    for program in (one, other):
        with kernel_tables.read(program.capture.write(folder / "capture.sqlite")) as profile:
            sides.append(side_of(profile))
    return changes(*sides, **options)


def changed(*programs: Program, **options) -> set[tuple[str, str, str]]:
    return {(change.level, change.name, change.change) for change in differences(*programs, **options).itertuples()}


@pytest.mark.parametrize("programs", [(training(), training(noise=-1)), (training(noise=20), training(1030, noise=20))])
def test_times_that_differ_by_less_than_the_steps_scatter_are_the_same(tmp_path, programs):
    assert changed(*programs, folder=tmp_path) == set()


def test_a_kernel_that_is_three_percent_slower_is_named_with_its_phase_part_and_class(tmp_path):
    expected = {("phase", "backward"), ("part", "backward"), ("class", "gemm"), ("kernel", GEMM)}
    found = changed(training(), training(gemm=1030), folder=tmp_path)
    assert found == {(*name, "time") for name in expected}
    assert changed(training(), training(gemm=1030), folder=tmp_path, tolerance=0.05) == set()


def test_what_appeared_is_gone_or_is_launched_more_often_is_told(tmp_path):
    more = changed(training(), training(extra=ADAM), folder=tmp_path)
    assert {("kernel", ADAM, "appeared"), ("phase", "backward", "count")} <= more
    assert ("kernel", ADAM, "gone") in changed(training(extra=ADAM), training(), folder=tmp_path)
    assert ("part", "norm", "count") in changed(training(), training(muls=3), folder=tmp_path)


def test_changes_of_each_level_add_up_to_the_same(tmp_path):
    table = differences(training(), training(gemm=1100, extra=ADAM), tmp_path, everything=True)
    assert table.groupby("level")["ms_more"].sum().to_dict() == pytest.approx(
        dict.fromkeys(("phase", "part", "class", "kernel"), 0.15)
    )


def test_captures_of_one_program_by_two_versions_of_nsys_differ_in_the_version_alone(tmp_path):
    one, other, empty = (
        str(CAPTURES / f"tiny_{version}.sqlite.gz") for version in ("2025.3.1", "2024.2.3", "2022.4.2")
    )
    assert main(["diff", one, other, "-o", str(tmp_path / "diff.csv")]) == 1
    table = pd.read_csv(tmp_path / "diff.csv")
    assert table[["level", "name"]].to_numpy().tolist() == [["fact", "nsys"], ["fact", "schema"]]
    assert main(["diff", one, empty, "-o", str(tmp_path / "diff.csv")]) == 1
    assert set(pd.read_csv(tmp_path / "diff.csv")["change"]) == {"fact", "gone"}
