"""Names of kernels that are not matrix multiplies: of PyTorch, with the loop and the function that it applies; of
memory operations, NCCL and Triton; and of any function of C++."""

import re
from collections.abc import Iterator

from kernel_tables.kernel_names import parts
from kernel_tables.kernel_names.parts import NamePart, split_function_name, template_arguments

LOOPS = {  # by kernel: how it gets at its operands
    "vectorized_elementwise_kernel": "vectorized",  # they lie densely: several elements per load
    "vectorized_templated_elementwise_kernel": "vectorized",  # densely, of several types
    "unrolled_elementwise_kernel": "unrolled",  # densely, but they differ in type or are not aligned
    "elementwise_kernel": "strided",  # strided or broadcast: an offset is computed for every element
    "elementwise_kernel_manual_unroll": "strided",
    "elementwise_kernel_with_index": "indexed",  # the function gets the index of its element
    "index_elementwise_kernel": "indexed",
    "_scatter_gather_elementwise_kernel": "scattered",
    "distribution_elementwise_grid_stride_kernel": "random",
}
LOOP_TEXTS = {  # of the loops that are not "elementwise" in a short name
    "_scatter_gather_elementwise_kernel": "scatter/gather",
    "distribution_elementwise_grid_stride_kernel": "random",
}
BINDINGS = {  # by word: which operands are numbers, which tensors; "" if all are tensors
    "AUnaryFunctor": "scalar-tensor",
    "BUnaryFunctor": "tensor-scalar",
    "BinaryFunctor": "",
    "CUDAFunctorOnSelf": "tensor-scalar",
    "CUDAFunctorOnOther": "scalar-tensor",
}
WRAPPERS = {  # words around the function that says what is computed
    *BINDINGS, "func_wrapper_t", "gpu_kernel_impl", "gpu_kernel_impl_nocast", "opmath_gpu_kernel_with_scalars",
    "ReduceOp", "_cuda_scatter_gather_internal_kernel", "normal_and_transform", "CUDAGeneratorImpl",
    "uniform_and_transform", "gpu_index_kernel",
}  # fmt: skip
RENAMED = {  # operations that are called otherwise in PyTorch's interface
    "direct_copy": "copy", "bfloat16_copy": "copy", "float16_copy": "copy", "MaxNan": "max", "MinNan": "min",
    "launch_clamp_scalar": "clamp", "NormTwo": "norm2", "Welford": "var", "pow_tensor_scalar": "pow",
    "TensorAssign": "assign", "ReduceAdd": "add", "CompareEq": "eq", "CompareNE": "ne", "ArgMax": "argmax",
    "ArgMin": "argmin",
}  # fmt: skip
MAX_READ = 2000  # characters of the arguments in which the operation is searched
MAX_OPERATORS, MAX_TEXT = 4, 32  # operators of a fused kernel in its short name, and their characters
MAX_ARGUMENT = 14  # characters of a template argument that a short name can hold
OPERATORS = (  # those of ATen with underscores within; one that begins with another precedes it
    "native_layer_norm_backward", "native_layer_norm", "_softmax_backward_data", "_log_softmax", "_softmax",
    "_to_copy", "_unsafe_view", "embedding_dense_backward", "empty_like", "convolution_backward", "native_dropout",
    "native_group_norm", "threshold_backward", "index_put", "index_select", "masked_fill", "new_zeros",
    "slice_backward", "scalar_tensor", "_scaled_dot_product", "_adaptive_avg_pool2d", "max_pool2d_with_indices",
    "bernoulli", "zeros_like", "ones_like",
)  # fmt: skip
_OPERATOR = re.compile(rf"(?:{'|'.join(OPERATORS)})(?=_|$)|[^_]+")
_WORD = re.compile(r"[A-Za-z_]\w*")
_SUFFIX = re.compile(
    r"_?(?:kernel_cuda|cuda_kernel|kernel_impl|CUDAKernelImpl|KernelImplInternal|KernelImpl|kernel|cuda_out|cuda"
    r"|functor|Functor|Ops)$"
)
_OPERATION_WORD = re.compile(
    r"CUDAFunctor\w*_\w+|\w*Functor|\w+Ops|\w+_kernel(?:_cuda|_impl)*|\w+_cuda_kernel|\w+CUDAKernelImpl|\w+KernelImplInternal"
    r"|\w+_cuda_out|\w+_functor|\w+KernelImpl|launch_\w+|ReduceAdd|ReduceMultiply|TensorAssign"
)


def pytorch_parts(name: str) -> tuple[NamePart, ...]:
    """The parts of the name of one of PyTorch's loops, reductions or lists of tensors; none for other names."""
    _, loop, arguments = split_function_name(name)
    if loop in LOOPS:
        head = NamePart("loop", LOOP_TEXTS.get(loop, "elementwise"), is_main=True)
        return (head, *_operation(arguments), NamePart("access", LOOPS[loop]), *_numbers(loop, arguments))
    if loop == "reduce_kernel":
        return (NamePart("loop", "reduce", is_main=True), *_operation(arguments), *_numbers(loop, arguments))
    if loop == "multi_tensor_apply_kernel":
        return (NamePart("loop", "foreach", is_main=True), *_operation(arguments), *_lists(arguments))
    return ()


def _operation(arguments: str) -> Iterator[NamePart]:
    """The function that is applied, how its operands are bound, and their type."""
    words = _WORD.findall(arguments[:MAX_READ])
    operation = next((word for word in words if word not in WRAPPERS and _OPERATION_WORD.fullmatch(word)), None)
    if operation is None:
        yield from filter(None, [parts.type_in(arguments)])
        return
    yield NamePart("operation", _operation_name(operation), is_main=True)
    binding = next((word for word in words[: words.index(operation) + 1] if word.split("_")[0] in BINDINGS), None)
    if binding:
        yield NamePart("operands", BINDINGS[binding.split("_")[0]])
    yield from filter(None, [_type(arguments, operation, binding)])
    if "LoadWithCast" in arguments:
        yield NamePart("cast", "cast")


def _type(arguments: str, operation: str, binding: str | None) -> NamePart | None:
    """The type of the operands; None if no type is found. It is taken from the template of their binding, since the
    operation may compute in another type; else from that of the operation; else from the parameters of its lambda; else
    it is the first type of all."""

    def template_after(word: str) -> str:
        template = re.match(r"<[^<>]*", arguments[arguments.index(word) + len(word) :])
        return template[0] if template else ""

    lambdas = re.findall(r"lambda\(([^()]+)\)", arguments[arguments.index(operation) :])
    texts = [template_after(word) for word in (binding, operation) if word] + [*lambdas[:1], arguments]
    return next(filter(None, map(parts.type_in, texts)), None)


def _operation_name(word: str) -> str:
    """mul from MulFunctor, exp from exp_kernel_cuda, silu backward from silu_backward_kernel."""
    word = re.sub(r"^CUDAFunctor(?:OnSelf|OnOther)?_", "", word)
    bare = _SUFFIX.sub("", word) or word
    bare = RENAMED.get(bare, bare)
    if bare[0].isupper():
        bare = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", bare).lower()
    return re.sub(r"_(backward)$", r" \1", bare)


def _numbers(loop: str, arguments: str) -> Iterator[NamePart]:
    """The numbers among the template arguments of the loop, and which of several lambdas it applies."""
    numbers = [argument for argument in template_arguments(arguments) if argument.isdigit()]
    if loop == "vectorized_elementwise_kernel" and numbers:
        yield NamePart("width", f"vec{numbers[0]}")
    elif numbers:
        yield NamePart("numbers", "/".join(numbers))
    # As nvcc and clang number lambdas: {lambda() (instance 2)}, {lambda()#2}.
    instances = re.findall(r"instance (\d+)|#(\d+)", " ".join(template_arguments(arguments)))
    if instances:
        yield NamePart("lambda", "λ" + ".".join(first or second for first, second in instances))


def _lists(arguments: str) -> Iterator[NamePart]:
    """The number of lists of tensors, and the function of each element."""
    metadata = re.search(r"TensorList(?:ScalarList)?Metadata<\D*(\d+)", arguments)
    if metadata:
        yield NamePart("lists", f"{metadata[1]} lists")
    inner = re.search(r",\s*(std::\w+<\w+>|at::native::(?:Copy|\w+)<[\w:, ]+>)", arguments)
    if inner:
        yield NamePart("function", inner[1].split("::")[-1].split("<")[0])


def memory_operation_parts(name: str) -> tuple[NamePart, ...]:
    """The parts of the name of a memory operation or a graph: [CUDA memcpy Host-to-Device], [CUDA graph 4]."""
    match = re.fullmatch(r"\[CUDA (memcpy|memset|graph)(?: (.+))?\]", name)
    if match is None:
        return ()
    operation = NamePart("operation", match[1], is_main=True)
    if not match[2]:
        return (operation,)
    if match[1] == "memcpy":
        way = match[2].replace("Host", "H").replace("Device", "D").replace("Peer", "P").replace("-to-", "to")
        return (operation, NamePart("way", way, is_main=True))
    return (operation, NamePart("number", match[2], is_main=True))


def operator_parts(name: str) -> tuple[NamePart, ...]:
    """The part of the name of an operator of PyTorch, which takes the place of a kernel on a CPU: aten::mm."""
    match = re.fullmatch(r"aten::\w+", name)
    return (NamePart("operator", name, is_main=True),) if match else ()


def triton_parts(name: str) -> tuple[NamePart, ...]:
    """The parts of the name of a kernel of torch.compile: triton_poi_fused_add_mul_3."""
    match = re.fullmatch(r"triton_(poi|red|per|tem|for)_fused_(.+?)(?:_(\d+))?", name)
    if match is None:
        return ()
    kind, operators, number = match.groups()
    return (
        NamePart("origin", "fused", is_main=True),
        NamePart("operators", _operators(_OPERATOR.findall(operators)), is_main=True),
        NamePart("loop", kind),
        *([NamePart("number", f"({number})")] if number else []),
    )


def _operators(words: list[str]) -> str:
    """As many of the first operators as there is room for, and the number of the others: "add mul +3"."""
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
    word_parts = (NamePart(f"word {number}", word) for number, word in enumerate(words))
    return (NamePart("operation", f"nccl {operation}", is_main=True), *word_parts)


def function_parts(name: str) -> tuple[NamePart, ...]:
    """The parts of any function's name: the name without `kernel`, its namespace, type and arguments."""
    namespaces, function, arguments = split_function_name(name)
    if not function:
        return ()
    head = NamePart("function", _without_kernel(namespaces, function), is_main=True)
    return (head, *_details(namespaces, arguments))


def _without_kernel(namespaces: str, function: str) -> str:
    """The name without `kernel` at its end. If it is only `kernel`, this with its namespace."""
    if function.lower() == "kernel":
        return f"{namespaces.split('::')[-1]} {function}".strip()
    return re.sub(r"_kernel(?:_cuda)?$|(?:CUDA)?Kernel$", "", function).strip("_") or function


def _details(namespaces: str, arguments: str) -> Iterator[NamePart]:
    if namespaces:
        yield NamePart("namespace", namespaces.split("::")[-1])
    if type_part := parts.type_in(arguments):
        yield type_part
    for number, argument in enumerate(template_arguments(arguments), start=1):
        text = parts.TYPES.get(argument) or f"<{argument.split('::')[-1]}>"
        if len(text) <= MAX_ARGUMENT:
            yield NamePart(f"argument {number}", text)
