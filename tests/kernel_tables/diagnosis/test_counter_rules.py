"""The rules that need counters of Nsight Compute: what they find, and that they abstain without."""

import json

import pandas as pd
import pytest

from kernel_tables.__main__ import main
from kernel_tables.counters.metrics import LIMITS, METRICS, MULTIPROCESSORS, OCCUPANCY
from kernel_tables.counters.reading import no_counters
from kernel_tables.diagnosis.diagnose import diagnose
from kernel_tables.diagnosis.rules import COUNTER_RULES
from kernel_tables.trace import Trace
from tests.kernel_tables.synthetic import Synthetic
from tests.kernel_tables.test_counters import PRINTED

GRIDS = {"whole": 40, "tail": 21, "little": 5}  # blocks on a GPU with places for 20


def capture(**names: str) -> Synthetic:
    """A step of three kernels, each of 100 us in one of GRIDS; names that are not given are those of the grids."""
    made = Synthetic().range("step", 0, 400_000)
    for place, (grid, blocks) in enumerate(GRIDS.items()):
        start = 100_000 * place
        made.kernel(
            names.get(grid, grid), at=start, start=start + 10, duration=100_000, grid=(blocks, 1, 1), block=(32, 1, 1)
        )
    return made


def counters(occupancy: float, **names: str) -> pd.DataFrame:
    zeros = dict.fromkeys((metric.name for metric in METRICS), 0.0)
    filled = {MULTIPROCESSORS: 10.0, OCCUPANCY: occupancy, **dict.fromkeys(LIMITS.values(), 2.0)}
    rows = [
        {"kernel": names.get(grid, grid), "grid": f"{blocks}x1x1", "block": "32x1x1"} | zeros | filled
        for grid, blocks in GRIDS.items()
    ]
    return pd.DataFrame(rows, columns=no_counters().columns)


def said(path, occupancy: float, **names: str) -> dict:
    with Trace(capture(**names).write(path / "c.sqlite")) as trace:
        found = diagnose(trace, counters=counters(occupancy, **names), rules=COUNTER_RULES)
    return {one.code: one for one in found}


def test_kernels_that_fill_the_gpu_with_half_empty_multiprocessors_are_found_and_too_small_ones_are_not(tmp_path):
    found = said(tmp_path, occupancy=40.0)["low_occupancy"]
    assert set(found.where["kernels"]) == {"whole", "tail"}  # `little` has a quarter of a wave
    assert found.gain_ms == pytest.approx(0.6 * 0.2) and found.evidence["mean_empty_warps"] == pytest.approx(0.6)
    assert "low_occupancy" not in said(tmp_path, occupancy=50.0)


def test_matrix_multiplies_are_fast_with_few_warps_and_are_not_named(tmp_path):
    gemm = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x64x8_execute_kernel__5x_cublas"
    assert set(said(tmp_path, 40.0, whole=gemm)["low_occupancy"].where["kernels"]) == {"tail"}


def test_a_nearly_empty_last_wave_is_found_with_the_places_that_stay_empty(tmp_path):
    found = said(tmp_path, occupancy=90.0)["wave_tail"]
    assert list(found.where["kernels"]) == ["tail"] and found.evidence["mean_tail"] == pytest.approx(19 / 40)
    assert found.gain_ms == pytest.approx(19 / 40 * 0.1, rel=1e-4)


def test_without_counters_these_rules_and_no_others_say_that_there_are_none(tmp_path):
    with Trace(capture().write(tmp_path / "c.sqlite")) as trace:
        silent = [one.code for one in diagnose(trace) if "no counters of Nsight Compute" in one.message]
        without = diagnose(trace, counters=counters(40.0).iloc[:0], rules=COUNTER_RULES)
    assert silent == ["low_occupancy", "wave_tail"] and without == []


def test_the_table_that_ncu_printed_can_be_given_to_the_command(tmp_path, capfdbinary):
    path = capture().write(tmp_path / "c.sqlite")
    assert main(["diagnose", str(path), "--counters", str(PRINTED), "--format", "json"]) == 0
    assert not {one["code"] for one in json.loads(capfdbinary.readouterr().out)} & {"low_occupancy", "wave_tail"}
    assert main(["diagnose", str(path), "--counters", str(path)]) == 2
