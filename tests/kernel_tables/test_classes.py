"""The classes of kernels, by full names."""

import csv
from pathlib import Path

import pytest

from kernel_tables import classes
from kernel_tables.errors import TraceError

# Class, short name in a table of all, and full name: of public traces, of every family of kernels that is known, and of
# operators. The classes were read off the names and what the kernels are known to do, not off the rules.
NAMES = Path(__file__).with_name("kernel_names.tsv")


def test_a_kernel_or_operator_has_the_class_that_its_full_name_says_and_every_rule_decides_one():
    with NAMES.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    found = classes.classify(row["name"] for row in rows)
    assert len(rows) == 544
    assert [(row, one) for row, one in zip(rows, found, strict=True) if row["class"] != one] == []
    deciding = [classes.first_rule(row["name"], classes.built_in_rules()) for row in rows]
    rules = [rule for rule in classes.built_in_rules() if "operators" not in rule.patterns]
    assert [rule for rule in rules if rule not in deciding or not rule.reason] == [] and len(rules) > 50


def test_words_in_the_arguments_do_not_make_the_class_but_unnamed_namespaces_and_return_types_hide_none():
    words = "gemm, softmax, flash_fwd, index, reduce_kernel, nccl, direct_copy_kernel_cuda, elementwise"
    exists = "std::enable_if<(((8)>(0)))&&vllm::_typeConvert<c10::BFloat16>::exists, void>::type"
    class_of = {
        f"void mine<{words}>({words})": "unknown",
        "void at::native::<unnamed>::softmax_warp_forward<float>(T2 *)": "softmax",
        "void at::native::(anonymous namespace)::softmax_warp_forward<float>(float*)": "softmax",
        f"{exists} vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*, long)": "normalization",
    }
    assert dict(zip(class_of, classes.classify(class_of), strict=True)) == class_of


def test_the_users_rules_come_first_and_look_at_the_full_name():
    rules = [{"class": "attention/mine", "pattern": r"_my_kernel"}, {"class": "gemm", "pattern": r"<MyProduct>"}]
    names = ["flash_fwd_my_kernel", "void run<MyProduct>(float*)", "[CUDA memset]"]
    assert classes.classify(names, rules) == ["attention/mine", "gemm", "memset"]


@pytest.mark.parametrize("rule", [{"class": "gemm"}, {"class": "", "pattern": "x"}, "gemm", {"class": 1}, "pattern"])
def test_a_users_rule_that_cannot_be_used_is_named_in_one_line(rule):
    message = r"lacks a class or a pattern; write \{class: gemm, pattern: 'my_kernel"
    if rule == "pattern":
        rule, message = {"class": "gemm", "pattern": "nvjet_("}, r"the pattern 'nvjet_\(' cannot be used"
    with pytest.raises(TraceError, match=f"^kernel_classes, rule 2: .*{message}.*$"):
        classes.users_rules([{"class": "gemm", "pattern": "fine"}, rule])


def test_a_matrix_multiply_says_whether_it_uses_tensor_cores():
    fp32 = ["ampere_sgemm_128x64_nn", "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x8_ffma"]
    others = ["ampere_sgemm_tf32x3_128x64_nn", "nvjet_tst_128x256", "my_product"]
    assert [classes.is_fp32_without_tensor_cores(name) for name in (*fp32, *others)] == [True] * 2 + [False] * 3
