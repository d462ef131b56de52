"""Names of other kernels: memory operations, NCCL, Triton, and any function of C++."""

import re
from collections.abc import Iterator

from kernel_tables.kernel_names.parts import TYPES, NamePart, split_function_name, template_arguments, type_in

MAX_OPERATORS, MAX_TEXT = 4, 32  # operators of a fused kernel in its short name, and their characters
MAX_ARGUMENT = 14  # characters of a template argument that a short name can hold
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
    """The parts of the name of a memory operation or a graph: [CUDA memcpy Host-to-Device], [CUDA graph 4]."""
    match = re.fullmatch(r"\[CUDA (memcpy|memset|graph)(?: (.+))?\]", name)
    if match is None:
        return ()
    meanings = {
        "memcpy": "a copy of memory",
        "memset": "sets memory to one value",
        "graph": "a CUDA graph, replayed by one launch; nsys --cuda-graph-trace=node records its kernels",
    }
    operation = NamePart("operation", match[1], meanings[match[1]], match[1], True)
    if not match[2]:
        return (operation,)
    if match[1] == "memcpy":
        short = match[2].replace("Host", "H").replace("Device", "D").replace("Peer", "P").replace("-to-", "to")
        return (operation, NamePart("way", match[2], "from where to where", short, True))
    return (operation, NamePart("number", match[2], "which one", match[2], True))


def operator_parts(name: str) -> tuple[NamePart, ...]:
    """The part of the name of an operator of PyTorch, which takes the place of a kernel on a CPU: aten::mm."""
    match = re.fullmatch(r"aten::\w+", name)
    return (NamePart("operator", name, "an operator of PyTorch, run on the CPU", name, True),) if match else ()


def triton_parts(name: str) -> tuple[NamePart, ...]:
    """The parts of the name of a kernel of torch.compile: triton_poi_fused_add_mul_3."""
    match = re.fullmatch(r"triton_(poi|red|per|tem|for)_fused_(.+?)(?:_(\d+))?", name)
    if match is None:
        return ()
    kind, operators, number = match.groups()
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
    """The first operators for which there is room, and how many more there are."""
    first_words = words[:MAX_OPERATORS]
    while len(first_words) > 1 and len(" ".join(first_words)) > MAX_TEXT:
        first_words = first_words[:-1]
    return " ".join(first_words) + (f" +{len(words) - len(first_words)}" if len(first_words) < len(words) else "")


def nccl_parts(name: str) -> tuple[NamePart, ...]:
    """The parts of the name of one of NCCL's kernels: ncclDevKernel_AllReduce_Sum_f32_RING_LL."""
    match = re.match(r"nccl(?:Dev)?Kernel_(\w+)", name)
    if match is None:
        return ()
    operation, *words = match[1].split("_")
    meanings = {"RING": "in a ring", "TREE": "in a tree", "LL": "low-latency protocol", "LL128": "low-latency protocol",
                "SIMPLE": "the protocol for large messages"}  # fmt: skip
    rest = (
        NamePart(f"word {place}", word, meanings.get(word, "type or operation"), word)
        for place, word in enumerate(words)
    )
    return (NamePart("operation", operation, "communication between GPUs", f"nccl {operation}", True), *rest)


def function_parts(name: str) -> tuple[NamePart, ...]:
    """The parts of any function's name: the name without `kernel`, its type and arguments."""
    namespaces, function, rest = split_function_name(name)
    if not function:
        return ()
    head = NamePart("function", function, "the function's own name", _bare(namespaces, function), True)
    return (head, *_details(namespaces, rest))


def _bare(namespaces: str, function: str) -> str:
    """The name without `kernel` at its end; with its namespace if it has no other word."""
    if function.lower() == "kernel":
        return f"{namespaces.split('::')[-1]} {function}".strip()
    return re.sub(r"_kernel(?:_cuda)?$|(?:CUDA)?Kernel$", "", function).strip("_") or function


def _details(namespaces: str, rest: str) -> Iterator[NamePart]:
    if namespaces:
        yield NamePart("namespace", namespaces, "whose function it is", namespaces.split("::")[-1])
    if type_part := type_in(rest):
        yield type_part
    for number, argument in enumerate(template_arguments(rest), start=1):
        short = TYPES.get(argument) or f"<{argument.split('::')[-1]}>"
        yield NamePart(f"argument {number}", argument, "of its template", short if len(short) <= MAX_ARGUMENT else "")
