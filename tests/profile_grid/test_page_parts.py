"""What the page is made of, without a browser: names, data for scripts, Markdown, the flame view's nodes."""

import json

import pytest

from profile_grid.page import for_script, markdown
from profile_grid.page.flame import flame
from profile_grid.page.names import Names, short_name
from profile_grid.page.tables import page_tables
from tests.profile_grid.made_up_grid import HOSTILE, made_up_tables


@pytest.mark.parametrize(
    ("full", "short"),
    [
        ("ampere_sgemm_128x64_tn", "ampere_sgemm_128x64_tn"),
        ("aten::mm", "aten::mm"),
        ("void softmax_warp_forward<float, (int)9>(float *)", "softmax_warp_forward…"),
        (
            "void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nt_align1>(T1::Params)",
            "Kernel2<…cutlass_80_simt_sgemm_256x128_8x4_nt_align1…>",
        ),
        (
            "void at::native::elementwise_kernel<(int)4, BinaryFunctor<float, MulFunctor<float>>>(int, T3)",
            "elementwise_kernel<…MulFunctor…>",
        ),
        ("void at::native::<unnamed>::CatArrayBatchedCopy<float>(T1 *)", "CatArrayBatchedCopy…"),
        (HOSTILE, HOSTILE),
        ("", ""),
    ],
)
def test_short_names_say_what_is_left_out(full, short):
    assert short_name(full) == short


def test_data_for_scripts_cannot_end_the_script_and_reads_back_as_it_was():
    value = {"name": "</script><script>alert(1)</script>\u2028", "ms": 1.5, "none": None}
    text = str(for_script(value))
    assert "<" not in text
    assert json.loads(text) == value


def test_sentences_become_html_without_links_or_html_of_their_own():
    assert markdown("**gemm 1** takes `a<b>` ms") == "<strong>gemm 1</strong> takes <code>a&lt;b&gt;</code> ms"
    assert markdown(r"\<script\> \[x\](javascript:alert(1))") == "&lt;script&gt; [x](javascript:alert(1))"
    assert "<a" not in markdown("[x](https://example.org) <b>")


def test_the_flame_of_a_step_conserves_time_from_kernels_to_ranges_to_the_step():
    tables = made_up_tables(models=("small",), contexts=(128,), modes=("train_step",))
    names = Names()
    nodes = flame(tables["kernels"], names)
    total_ms = tables["kernels"]["total_ns"].sum() / 3 / 1e6
    assert nodes["ms"][0] == pytest.approx(total_ms)
    children = [0.0] * len(nodes["ms"])
    for parent, ms in zip(nodes["parent"][1:], nodes["ms"][1:], strict=True):
        children[parent] += ms
    for own, below in zip(nodes["ms"], children, strict=True):
        assert below == 0 or below == pytest.approx(own)
    full = names.as_lists()["full"]
    assert [full[number] for number in nodes["name"][:3]] == ["step", "forward", "embedding"]


def test_a_run_out_of_memory_has_its_row_and_no_numbers():
    out = {"timing_status": "out_of_memory", "capture_status": "out_of_memory"}
    tables = made_up_tables(
        models=("small",), contexts=(128,), modes=("forward", "train_step"), changes={"small_ctx128_train_step": out}
    )
    table = page_tables(tables, Names())["forward_time"]
    names = [column.name for column in table.columns]
    row = dict(zip(names, table.rows[1], strict=True))
    assert row["timing_status"] == "out_of_memory"
    assert row["unprofiled_step_ms"] is None
    assert row["forward_gpu_busy_ms"] is None
