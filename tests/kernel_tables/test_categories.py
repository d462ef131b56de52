"""The classes of kernels, on full names."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_tables.errors import TraceError
from kernel_tables.kernel_classes import categories
from kernel_tables.kernel_classes.categories import pattern_problem

PATH_TO_NAMES = Path(__file__).with_name("kernel_names.json")  # full names from public traces: [launches, µs]
PATH_TO_EXPECTED = Path(__file__).with_name("expected_classes.tsv")

# Every operator that torch.profiler recorded on a CPU (PyTorch 2.13) in training steps of a Transformer: attention with
# softmax, written out by hand, and fused; fp32 and bf16 autocast; cross-entropy of the library and by hand;
# clipping; AdamW with foreach, fused, one tensor at a time, and by hand; SGD.
OPERATORS_OF_A_TRAINING_STEP = """
    _foreach_add_ _foreach_addcdiv_ _foreach_addcmul_ _foreach_div_ _foreach_lerp_ _foreach_mul_ _foreach_norm
    _foreach_sqrt _fused_adamw_ _has_compatible_shallow_copy_type _index_put_impl_ _local_scalar_dense
    _log_softmax _log_softmax_backward_data _reshape_alias _scaled_dot_product_flash_attention_for_cpu
    _scaled_dot_product_flash_attention_for_cpu_backward _softmax _softmax_backward_data _to_copy _unsafe_view
    add add_ addcdiv_ addcmul_ addmm amax arange as_strided bernoulli_ bmm cat clamp clone copy_
    cross_entropy_loss detach detach_ div div_ dropout einsum embedding embedding_backward
    embedding_dense_backward empty empty_like empty_strided eq exp expand fill_ flatten gather gather_backward
    gelu gelu_backward index index_select item layer_norm lerp_ lift_fresh linalg_vector_norm linear log
    log_softmax masked_fill masked_fill_ matmul max mean mm mul mul_ narrow native_layer_norm
    native_layer_norm_backward neg new_empty new_zeros nll_loss nll_loss_backward nll_loss_forward nll_loss_nd
    ones ones_like permute pow randint random_ reciprocal reshape resize_ resolve_conj result_type rsqrt
    scalar_tensor scaled_dot_product_attention scatter_ scatter_add_ select sigmoid sigmoid_backward silu
    silu_backward slice slice_backward softmax sqrt squeeze stack sub sub_ sum t to transpose tril triu unbind
    unsqueeze value_selecting_reduction_backward view where zero_ zeros zeros_like
"""

EXPECTED_OPERATORS = {
    "gemm": "mm addmm bmm baddbmm matmul linear einsum",
    "attention": "scaled_dot_product_attention _scaled_dot_product_flash_attention_for_cpu_backward",
    "softmax": "softmax _softmax _log_softmax_backward_data cross_entropy_loss",
    "normalization": "native_layer_norm native_layer_norm_backward rms_norm",
    "optimizer": "_fused_adamw_ _fused_sgd_",
    "optimizer/foreach": "_foreach_add_ _foreach_norm",
    "reduction": "sum mean amax max",
    "embedding": "embedding embedding_dense_backward",
    "embedding/index": "index index_select gather scatter_add_",
    "random": "randn rand randint normal_ uniform_ dropout",
    "elementwise": "add add_ mul rsqrt maximum masked_fill_ where addcdiv_",
    "elementwise/activation": "silu silu_backward sigmoid gelu",
    "elementwise/copy": "copy_ to _to_copy clone contiguous cat reshape",
    "elementwise/fill": "zero_ fill_ zeros_like arange",
    "other/view": "view transpose permute t expand slice unbind",
    "unknown": "addition mm_mm my_operator",
}


def _expected_classes():
    """(class, full name) by hand: read off the name and what it is known to do, not off the rules."""
    lines = PATH_TO_EXPECTED.read_text("utf-8").splitlines()[1:]
    return [tuple(line.split("\t")) for line in lines]


@pytest.fixture(scope="module")
def public_names():
    return json.loads(PATH_TO_NAMES.read_text("utf-8"))


@pytest.mark.parametrize(("expected", "name"), _expected_classes())
def test_a_kernel_has_the_class_that_its_full_name_says(expected, name):
    assert categories.classify([name]) == [expected]


@pytest.mark.parametrize(("expected", "operators"), EXPECTED_OPERATORS.items())
def test_an_operator_of_a_cpu_capture_has_the_class_that_its_name_says(expected, operators):
    names = [f"aten::{operator}" for operator in operators.split()]
    assert dict.fromkeys(names, expected) == dict(zip(names, categories.classify(names), strict=True))


def test_no_operator_of_a_training_step_on_a_cpu_is_unknown():
    names = [f"aten::{operator}" for operator in OPERATORS_OF_A_TRAINING_STEP.split()]
    assert len(names) == 128
    assert [name for name in names if categories.rule_for(name) is None] == []


@pytest.mark.parametrize(
    "rule", categories.built_in_rules(), ids=lambda rule: f"{rule.kernel_class}: {rule.example[:40]}"
)
def test_the_example_of_a_rule_fits_it_and_none_before_it(rule):
    assert categories.rule_for(rule.example) == rule
    assert rule.reason


def test_no_name_of_the_public_traces_is_unknown_by_count_or_by_time(public_names):
    unknown = [name for name in public_names if categories.rule_for(name) is None]
    unknown_launches = sum(public_names[name][0] for name in unknown) / sum(n for n, _ in public_names.values())
    unknown_us = sum(public_names[name][1] for name in unknown) / sum(us for _, us in public_names.values())
    listed = "\n".join(unknown)
    assert (len(public_names), unknown_launches, unknown_us) == (442, 0.0, 0.0), f"no rule knows:\n{listed}"


def test_the_public_traces_keep_their_shares(public_names):
    """A pattern that grows too wide moves time between families: per cent of the traces' µs, as read name by name."""
    us_of_family = {}
    for (_, us), kernel_class in zip(public_names.values(), categories.classify(public_names), strict=True):
        us_of_family[categories.family(kernel_class)] = us_of_family.get(categories.family(kernel_class), 0) + us
    total_us = sum(us_of_family.values())
    largest = {family: round(100 * us / total_us, 1) for family, us in us_of_family.items() if us > 0.01 * total_us}
    assert largest == {
        "gemm": 41.3,
        "elementwise": 39.9,
        "communication": 5.7,
        "attention": 3.2,
        "embedding": 3.0,
        "other": 2.0,
        "normalization": 1.7,
        "triton-fused": 1.3,
    }


def test_what_stands_in_the_arguments_does_not_make_the_class():
    words = "gemm, softmax, flash_fwd, index, reduce_kernel, nccl, direct_copy_kernel_cuda, elementwise"
    assert categories.classify([f"void mine<{words}>({words})"]) == ["unknown"]


def test_unnamed_namespaces_and_return_types_belong_to_the_own_name():
    rms_norm = "vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*, long)"
    names = [
        "void at::native::<unnamed>::softmax_warp_forward<float>(T2 *)",
        "void at::native::(anonymous namespace)::softmax_warp_forward<float>(float*)",
        f"std::enable_if<(((8)>(0)))&&vllm::_typeConvert<c10::BFloat16>::exists, void>::type {rms_norm}",
    ]
    assert categories.classify(names) == ["softmax", "softmax", "normalization"]


def test_the_users_rules_come_first_and_look_at_the_full_name():
    rules = [{"class": "attention/mine", "pattern": r"_my_kernel"}, {"class": "gemm", "pattern": r"<MyProduct>"}]
    names = ["flash_fwd_my_kernel", "void run<MyProduct>(float*)", "[CUDA memset]"]
    assert categories.classify(names, rules) == ["attention/mine", "gemm", "memset"]
    assert categories.rule_for(names[0], rules).reason == "a rule of config.yaml"


def test_a_pattern_that_is_no_regular_expression_is_said_in_one_line():
    rules = [{"class": "gemm", "pattern": "fine"}, {"class": "gemm", "pattern": "nvjet_("}]
    with pytest.raises(TraceError) as raised:
        categories.classify([], rules)
    assert str(raised.value) == (
        "kernel_classes, rule 2: the pattern 'nvjet_(' cannot be used (missing ): nvjet_(); put a backslash before a "
        "bracket, star or plus that is part of the name"
    )


@pytest.mark.parametrize("pattern", ["(?=gemm)", "(?<!x)gemm", r"(a)\1", "(?!a)b"])
def test_a_pattern_that_would_need_backtracking_is_refused_by_what_it_asks_for(pattern):
    with pytest.raises(TraceError, match="RE2, which searches here, has no lookahead, lookbehind or backreference"):
        categories.users_rules([{"class": "gemm", "pattern": pattern}])


def test_a_pattern_that_python_would_never_finish_ends_at_once():
    endless = [{"class": "mine", "pattern": r"(a|a|[a-z:_]+)+$!"}]
    assert categories.classify(["at::native::elementwise_kernel_of_many_letters" * 100], endless) == ["elementwise"]


def test_every_built_in_rule_is_searched_in_linear_time():
    patterns = [
        categories._expression(part, text) for rule in categories.built_in_rules() for part, text in rule.patterns
    ]
    assert [pattern for pattern in patterns if pattern_problem(pattern)] == []


@pytest.mark.parametrize(
    "rule", [{"class": "gemm"}, {"pattern": "x"}, {"class": "", "pattern": "x"}, "gemm", {"class": 1, "pattern": "x"}]
)
def test_a_users_rule_without_class_or_pattern_is_said_in_one_line(rule):
    with pytest.raises(TraceError, match=r"^kernel_classes, rule 1: .* lacks a class or a pattern; write [^\n]*$"):
        categories.classify([], [rule])


def test_classes_come_in_the_order_of_the_names_and_repeats_cost_one_look(monkeypatch):
    looked_at = []
    first_fits = categories._first_fitting_rules

    def first_fits_of(names, rules):
        looked_at.extend(names)
        return first_fits(names, rules)

    monkeypatch.setattr(categories, "_first_fitting_rules", first_fits_of)
    assert categories.classify(iter(["aten::mm", "[CUDA memset]", "aten::mm"])) == ["gemm", "memset", "gemm"]
    assert looked_at == ["aten::mm", "[CUDA memset]"]
    assert categories.classify([]) == []


def test_the_family_is_what_stands_before_the_slash():
    assert [categories.family(name) for name in ("elementwise/copy", "gemm", "triton-fused/softmax")] == [
        "elementwise",
        "gemm",
        "triton-fused",
    ]


def test_importing_the_module_imports_nothing_heavy_and_reads_no_rules():
    program = (
        "import sys, kernel_tables.kernel_classes.categories as c; "
        "print(c.built_in_rules.cache_info().currsize, {'numpy', 'pyarrow', 'torch', 'tomllib'} & set(sys.modules))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=PATH_TO_NAMES.parents[2]
    )
    assert answer.stdout == "0 set()\n"
