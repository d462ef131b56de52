"""The modules that kernels of compiled graphs serve, as ranges of a recording."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from kernel_recorder.in_process.compiled_ranges import module_chains, ranges_of
from kernel_tables.trace import Trace
from range_marks.compiled import KernelOrigins

PROGRAM = Path(__file__).with_name("programs") / "compiled_blocks.py"
MODEL, BLOCK, OTHER_BLOCK, NORM, HEAD, WRAPPER = 1, 2, 3, 4, 5, 6
NAMES = {MODEL: "Net", BLOCK: "blocks", OTHER_BLOCK: "blocks", NORM: "blocks.norm", HEAD: "head", WRAPPER: "Net"}


@pytest.mark.parametrize(
    ("chains", "ranges"),
    [
        ([(MODEL, BLOCK, NORM)], ["Net", "blocks", "blocks.norm"]),
        ([(WRAPPER, MODEL, HEAD)], ["Net", "head"]),
        ([(MODEL, BLOCK), (MODEL, BLOCK, NORM)], ["Net", "blocks", "blocks + blocks.norm"]),
        ([(MODEL, BLOCK, NORM), (MODEL, HEAD)], ["Net", "blocks.norm + head"]),
        ([(MODEL, BLOCK), (MODEL, OTHER_BLOCK)], ["Net", "blocks"]),
        ([(MODEL, 99), (99,)], ["Net"]),  # 99 has no name
        ([], []),
    ],
)
def test_a_kernel_is_in_the_modules_around_all_that_it_serves_and_in_their_set(chains, ranges):
    assert [part.name for part in ranges_of(tuple(chains), NAMES.get)] == ranges


def node(**meta):
    return SimpleNamespace(meta=meta)


def test_an_operation_of_the_backward_pass_serves_the_modules_that_it_differentiates():
    forward = {"1": ("L['self']", None), "2@1": ("L['self'].blocks.0", None)}
    nodes = [node(nn_module_stack=forward), node(fwd_nn_module_stack={"1": ()}, nn_module_stack=forward), node()]
    assert module_chains(KernelOrigins([], nodes)) == ((1,), (1, 2))


def test_a_layer_that_follows_another_of_its_name_is_another_instance():
    (_, first), (_, second) = (ranges_of(((MODEL, block),), NAMES.get) for block in (BLOCK, OTHER_BLOCK))
    assert first.name == second.name and first != second


def products(recorded):
    """The number of products of matrices, and the instances, by range path."""
    with Trace(recorded.capture) as trace:
        kernels, tree = trace.kernels("step"), trace.range_tree("step")
    kernels = kernels[kernels["kernel"].isin(["aten::mm", "aten::linear"])]
    paths = kernels.groupby("range")["launches"].sum().to_dict()
    instances = tree.set_index("range")["instances"].to_dict()
    return paths, {path: instances[path] for path in paths}


def test_products_of_a_compiled_model_are_in_the_modules_in_which_they_are_without_a_compiler(record):
    eager = record(program=[sys.executable, str(PROGRAM), "eager"])
    expected, instances = products(eager)
    assert expected["step > backward > Net > blocks > blocks.up"] == 2 * 2 * 6 - 6  # the input of the first needs none
    assert instances["step > forward > Net > blocks > blocks.up"] == 2 * 6
    eager.capture.unlink()
    compiled = record(program=[sys.executable, str(PROGRAM)])
    assert compiled.out == eager.out  # the digest of the weights
    assert products(compiled) == (expected, instances)
