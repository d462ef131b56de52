"""The tables and sentences of (e), from made-up runs."""

import pandas as pd
import pytest

from profile_grid.documents.documents import documents, section
from profile_grid.tables.measured import by_machine
from tests.profile_grid.made_up import GEMM, SDPA, SOFTMAX, Kernel, Made, forward_kernels, merged
from tests.profile_grid.made_up_answers import Said, answered, forward, own_tables, summaries
from tests.profile_grid.test_answers import PROVENANCE


def test_attention_has_time_per_layer_and_exact_flops():
    kernels = (  # phase, range, name, class, launches, µs
        Kernel("forward", f"{SDPA} > computing attention scores", GEMM, "gemm", 12, 1200.0),
        Kernel("forward", f"{SDPA} > computing softmax", SOFTMAX, "softmax", 12, 1800.0),
        Kernel("forward", f"{SDPA} > final matmul", GEMM, "gemm", 12, 600.0),
    )
    table = summaries(Made(kernels=kernels))["attention"].set_index("part")
    assert table["flops_per_layer"].to_dict() == {
        "computing attention scores": 1_610_612_736,
        "computing softmax": 62_914_560,
        "final matmul": 1_610_612_736,
        "scaled dot product attention": 2 * 1_610_612_736 + 6 * 4 * 12 * 512**2,
    }
    assert table["gpu_time_per_layer_us"].to_dict() == pytest.approx(
        {
            "computing attention scores": 100.0,
            "computing softmax": 150.0,
            "final matmul": 50.0,
            "scaled dot product attention": 300.0,
        }
    )
    assert table.loc["computing softmax", "runtime_to_matmuls"] == pytest.approx(1.0)
    assert table.loc["computing softmax", "flops_to_matmuls"] == pytest.approx(5 / (4 * 64))
    assert table.loc["final matmul", "flop_per_s"] == pytest.approx(1_610_612_736 / 50e-6)


def test_softmax_is_compared_with_the_matrix_multiplies_in_time_and_flops():
    assert Said(forward())["e"].startswith(
        "Softmax takes 0.562 times as long as both matrix multiplies of attention together, for 2.0 % of their FLOPs."
    )


def test_flops_that_no_size_tells_are_said_to_be_unknown_and_have_no_table():
    tables = merged(forward())
    tables["runs"] = tables["runs"].assign(d_model=pd.NA, num_heads=pd.NA, num_layers=pd.NA)
    summaries_of_run = own_tables("e_attention", tables)
    machine, names = by_machine(tables["runs"])[0]
    found = section(machine, names, tables["runs"], summaries_of_run, ["e_attention"])
    text = " ".join(found.sentences["e_attention"])
    assert text.startswith("Softmax takes 0.562 times as long as both matrix multiplies of attention together. ")
    assert "does not run once per layer" not in text
    made = documents(summaries_of_run, tables["runs"], PROVENANCE, ["e_attention"])["e_attention"]
    assert "FLOPs of one layer:" not in made and "In one layer:" in made


BACKWARD_OF_ATTENTION = (
    Kernel("backward", f"{SDPA} > computing attention scores", GEMM, "gemm", 24, 2400.0),
    Kernel("backward", f"{SDPA} > computing softmax", SOFTMAX, "softmax", 12, 1800.0),
    Kernel("backward", f"{SDPA} > final matmul", GEMM, "gemm", 24, 1200.0),
)


def trained(*backward: Kernel):
    return [*forward(), Made(mode="train_step", kernels=(*forward_kernels(), *backward))]


def test_the_backward_pass_has_its_own_times_and_flops_and_nothing_that_is_computed_again():
    again = Kernel("backward", f"recomputation > {SDPA} > computing softmax", SOFTMAX, "softmax", 12, 900.0)
    table = summaries(*trained(*BACKWARD_OF_ATTENTION, again))["attention_backward"].set_index("part")
    assert set(table["mode"]) == {"train_step"}
    assert table["gpu_time_ms"].to_dict() == pytest.approx(
        {
            "computing attention scores": 2.4,
            "computing softmax": 1.8,
            "final matmul": 1.2,
            "scaled dot product attention": 5.4,
        }
    )
    assert table.loc["computing softmax", "runtime_to_matmuls"] == pytest.approx(0.5)
    assert table.loc["computing softmax", "flops_to_matmuls"] == pytest.approx(4 / (8 * 64))
    assert table.loc["final matmul", "flops_per_layer"] == 2 * 1_610_612_736


def test_a_layer_of_the_backward_pass_is_a_layer_also_if_it_opens_a_range_several_times():
    tables = merged(trained(*BACKWARD_OF_ATTENTION))
    is_backward = tables["ranges"]["phase"] == "backward"
    opened_twice = tables["ranges"].assign(instances=tables["ranges"]["instances"] * (1 + is_backward))
    table, doubled = (
        own_tables("e_attention", tables | {"ranges": ranges})["attention_backward"].set_index("part")
        for ranges in (tables["ranges"], opened_twice)
    )
    assert table.loc["final matmul", "gpu_time_per_layer_us"] == pytest.approx(100.0)
    assert doubled["gpu_time_per_layer_us"].to_dict() == pytest.approx(table["gpu_time_per_layer_us"].to_dict())


def test_softmax_is_compared_in_the_backward_pass_too():
    said = Said(trained(*BACKWARD_OF_ATTENTION))["e"]
    assert (
        "In the backward pass, softmax's gradients take 0.500 times as long as those of both matrix multiplies." in said
    )


def test_a_capture_that_does_not_tell_the_parts_of_the_backward_pass_is_told():
    text = Said(trained(Kernel("backward", "", GEMM, "gemm", 120, 9000.0)))["e"]
    assert "Backward times are missing: these captures have no ranges of parts in the backward pass." in text
    assert "Backward" not in Said(forward())["e"]


def test_the_document_has_a_table_of_the_backward_pass_where_the_captures_tell_its_parts():
    def lines(*backward: Kernel) -> list[str]:
        return answered("e_attention", trained(*backward)).splitlines()

    told = lines(*BACKWARD_OF_ATTENTION)
    (head,) = [number for number, line in enumerate(told) if line.startswith("In one layer of the backward pass")]
    assert told[head - 1] == told[head + 1] == ""  # else Markdown takes the text for a row of the table before
    assert not [line for line in lines() if line.startswith("In one layer of the backward pass")]
