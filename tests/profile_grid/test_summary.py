from dataclasses import replace

import pandas as pd
import pytest

from kernel_tables.errors import NotConserved
from profile_grid.documents.summaries import summary_tables
from tests.profile_grid.made_up import (
    GEMM,
    H200,
    Kernel,
    Made,
    forward_kernels,
    grid,
    merged,
)
from tests.profile_grid.made_up_answers import summaries


def test_kernels_that_do_not_add_up_to_their_phase_are_an_error_that_names_it():
    tables = merged([Made(kernels=forward_kernels())])
    tables["kernels"] = tables["kernels"].iloc[1:]
    with pytest.raises(NotConserved, match="small_ctx512_forward, 0, forward: kernel_ns of the phase is 9800000 ns"):
        summary_tables(tables)


def test_phases_that_do_not_add_up_to_their_step_are_an_error():
    tables = merged([Made(kernels=forward_kernels())])
    tables["phases"].loc[tables["phases"]["phase"] == "step", "kernel_ns"] += 1
    with pytest.raises(NotConserved, match="kernel_ns of the step is 9800001 ns, its parts sum to 9800000 ns"):
        summary_tables(tables)


def test_kernels_outside_the_measured_steps_are_no_part_of_a_pass():
    tables = merged([Made(kernels=(Kernel("forward", "", GEMM, "gemm", 1, 100.0),), steps=1)])
    tables["kernels"] = pd.concat([tables["kernels"], tables["kernels"].assign(step=-1, phase="(outside)")])
    assert summary_tables(tables, ["class_shares"])["class_shares"]["gpu_time_ms"].tolist() == [0.1, 0.1]


def test_a_grid_without_any_kernel_has_empty_tables_with_all_their_columns():
    whole, bare = summaries(*grid()), summaries(*[replace(run, kernels=()) for run in grid()])
    for name in ("top_kernels", "forward_classes", "forward_parts", "class_shares", "attention"):
        assert bare[name].empty
        assert list(bare[name].columns) == list(whole[name].columns)


def test_runs_stand_in_the_order_of_the_grid():
    runs = [Made(model=model, machine=H200, kernels=forward_kernels()) for model in ("small", "2.7B", "large")]
    tables = summary_tables(merged(runs)).values()
    filled = [table for table in tables if len(table)]  # none of these runs differs in another way
    assert len(filled) >= 7
    for table in filled:
        assert list(dict.fromkeys(table["model"])) == ["small", "2.7B", "large"]
