"""Names of other kernels: memory operations, NCCL, Triton, and any function of C++."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernel_tables.kernel_names.parts import TYPES, NamePart, split_function_name, template_arguments, type_in

MOST_OPERATORS, MOST_TEXT = 4, 32  # operators of a fused kernel in its short name, and their characters
MOST_ARGUMENT = 14  # characters of a template argument that a short name can hold
TRITON_KINDS = {"poi": "element by element", "red": "a reduction in a loop", "per": "a reduction in one pass",
                "tem": "a template, such as a matrix multiply"}  # fmt: skip
OPERATORS = (  # of ATen, longest first: the underscores within them do not separate
    "native_layer_norm_backward", "native_layer_norm", "_softmax_backward_data", "_log_softmax", "_softmax",
    "_to_copy", "_unsafe_view", "embedding_dense_backward", "empty_like", "convolution_backward", "native_dropout",
    "native_group_norm", "threshold_backward", "index_put", "index_select", "masked_fill", "new_zeros",
    "slice_backward", "scalar_tensor", "_scaled_dot_product", "_adaptive_avg_pool2d", "max_pool2d_with_indices",
    "bernoulli", "zeros_like", "ones_like",
)  # fmt: skip
_OPERATOR = re.compile(rf"(?:{'|'.join(OPERATORS)})(?=_|$)|[^_]+")


def memory_operation_parts(name: str) -> tuple[NamePart, ...]:
    """The parts of what stands for a memory operation or a graph: [CUDA memcpy Host-to-Device], [CUDA graph 4]."""
    found = re.fullmatch(r"\[CUDA (memcpy|memset|graph)(?: (.+))?\]", name)
    if found is None:
        return ()
    meanings = {
        "memcpy": "a copy of memory",
        "memset": "sets memory to one value",
        "graph": "a CUDA graph, replayed by one launch; nsys --cuda-graph-trace=node records its kernels",
    }
    operation = NamePart("operation", found[1], meanings[found[1]], found[1], True)
    if not found[2]:
        return (operation,)
    if found[1] == "memcpy":
        short = found[2].replace("Host", "H").replace("Device", "D").replace("Peer", "P").replace("-to-", "to")
        return (operation, NamePart("way", found[2], "from where to where", short, True))
    return (operation, NamePart("number", found[2], "which one", found[2], True))


def operator_parts(name: str) -> tuple[NamePart, ...]:
    """The part of the name of an operator of PyTorch, which stands for a kernel in captures of a CPU: aten::mm."""
    found = re.fullmatch(r"aten::\w+", name)
    return (NamePart("operator", name, "an operator of PyTorch, run on the CPU", name, True),) if found else ()


def triton_parts(name: str) -> tuple[NamePart, ...]:
    """The parts of the name of a kernel that torch.compile wrote: triton_poi_fused_add_mul_3."""
    found = re.fullmatch(r"triton_(poi|red|per|tem|for)_fused_(.+?)(?:_(\d+))?", name)
    if found is None:
        return ()
    kind, operators, number = found.groups()
    text = _operators(_OPERATOR.findall(operators))
    parts = [
        NamePart("origin", "triton", "written by torch.compile for Triton", "fused", True),
        NamePart("operators", operators, "the operators that are one kernel here, by the alphabet", text, True),
        NamePart("loop", kind, TRITON_KINDS.get(kind, "a list of kernels in one"), kind),
    ]
    return (
        (*parts, NamePart("number", number, "its number in the compiled program", number)) if number else tuple(parts)
    )


def _operators(words: list[str]) -> str:
    """The first operators that there is room for, and how many more."""
    kept = words[:MOST_OPERATORS]
    while len(kept) > 1 and len(" ".join(kept)) > MOST_TEXT:
        kept = kept[:-1]
    return " ".join(kept) + (f" +{len(words) - len(kept)}" if len(kept) < len(words) else "")


def nccl_parts(name: str) -> tuple[NamePart, ...]:
    """The parts of the name of one of NCCL's kernels: ncclDevKernel_AllReduce_Sum_f32_RING_LL."""
    found = re.match(r"nccl(?:Dev)?Kernel_(\w+)", name)
    if found is None:
        return ()
    operation, *words = found[1].split("_")
    meanings = {"RING": "in a ring", "TREE": "in a tree", "LL": "low-latency protocol", "LL128": "low-latency protocol",
                "SIMPLE": "the protocol for large messages"}  # fmt: skip
    rest = (
        NamePart(f"word {place}", word, meanings.get(word, "type or operation"), word)
        for place, word in enumerate(words)
    )
    return (NamePart("operation", operation, "communication between GPUs", f"nccl {operation}", True), *rest)


def function_parts(name: str) -> tuple[NamePart, ...]:
    """The parts of any function's name: its own name without what says that it is a kernel, its type and arguments."""
    spaces, own, rest = split_function_name(name)
    if not own:
        return ()
    return (NamePart("function", own, "the function's own name", _bare(spaces, own), True), *_details(spaces, rest))


def _bare(spaces: str, own: str) -> str:
    """The own name without a last word that says only that it is a kernel; with its namespace where it says no more."""
    if own.lower() == "kernel":
        return f"{spaces.split('::')[-1]} {own}".strip()
    return re.sub(r"_kernel(?:_cuda)?$|(?:CUDA)?Kernel$", "", own).strip("_") or own


def _details(spaces: str, rest: str) -> Iterator[NamePart]:
    if spaces:
        last = spaces.split("::")[-1]
        yield NamePart("namespace", spaces, "whose function it is", last)
    if found := type_in(rest):
        yield found
    for place, argument in enumerate(template_arguments(rest), start=1):
        short = TYPES.get(argument) or f"<{argument.split('::')[-1]}>"
        yield NamePart(f"argument {place}", argument, "of its template", short if len(short) <= MOST_ARGUMENT else "")
