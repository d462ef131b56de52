"""Names of kernels that are not matrix multiplies: of PyTorch, with the loop and the function that it applies; of
memory operations, NCCL and Triton; and of any function of C++."""

import re
from collections.abc import Iterator

from kernel_tables.kernel_names import parts
from kernel_tables.kernel_names.parts import NamePart, main_part, split_function_name, template_arguments

LOOPS = {  # by kernel: how it gets at its operands, in a short name and explained
    "vectorized_elementwise_kernel": ("vectorized", "operands lie densely: several elements per load"),
    "vectorized_templated_elementwise_kernel": ("vectorized", "operands lie densely, of several types"),
    "unrolled_elementwise_kernel": ("unrolled", "operands lie densely but differ in type or are not aligned"),
    "elementwise_kernel": ("strided", "operands are strided or broadcast: an offset is computed for every element"),
    "elementwise_kernel_manual_unroll": ("strided", "operands are strided or broadcast"),
    "elementwise_kernel_with_index": ("indexed", "the function gets the index of its element"),
    "index_elementwise_kernel": ("indexed", "reads or writes through an index"),
    "_scatter_gather_elementwise_kernel": ("scattered", "reads or writes through an index along one dimension"),
    "distribution_elementwise_grid_stride_kernel": ("random", "fills with random numbers"),
}
LOOP_TEXTS = {  # of the loops that are not "elementwise" in a short name
    "_scatter_gather_elementwise_kernel": "scatter/gather",
    "distribution_elementwise_grid_stride_kernel": "random",
}
BINDINGS = {  # by word: which operands are numbers, in a short name and explained
    "AUnaryFunctor": ("scalar-tensor", "of a number and a tensor"),
    "BUnaryFunctor": ("tensor-scalar", "of a tensor and a number"),
    "BinaryFunctor": ("", "of two tensors"),
    "CUDAFunctorOnSelf": ("tensor-scalar", "of a tensor and a number"),
    "CUDAFunctorOnOther": ("scalar-tensor", "of a number and a tensor"),
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
NUMBER_MEANINGS = {"reduce_kernel": "most threads of a block, outputs per thread, inputs per load"}
LOOP_NUMBER_MEANING = "threads of a block, elements per thread"  # of the other kernels
MAX_READ = 2000  # characters of the arguments in which the operation is searched
MAX_OPERATORS, MAX_TEXT = 4, 32  # operators of a fused kernel in its short name, and their characters
MAX_ARGUMENT = 14  # characters of a template argument that a short name can hold
TRITON_KINDS = {"poi": "element by element", "red": "a reduction in a loop", "per": "a reduction in one pass",
                "tem": "a template, such as a matrix multiply"}  # fmt: skip
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
        access, meaning = LOOPS[loop]
        head = main_part("loop", loop, "a function of every element", LOOP_TEXTS.get(loop, "elementwise"))
        return (head, *_operation(arguments), NamePart("access", loop, meaning, access), *_numbers(loop, arguments))
    if loop == "reduce_kernel":
        head = main_part("loop", loop, "many values to one", "reduce")
        return (head, *_operation(arguments), *_numbers(loop, arguments))
    if loop == "multi_tensor_apply_kernel":
        head = main_part("loop", loop, "a function of every element of a list of tensors", "foreach")
        return (head, *_operation(arguments), *_lists(arguments))
    return ()


def _operation(arguments: str) -> Iterator[NamePart]:
    """The function that is applied, how its operands are bound, and their type."""
    words = _WORD.findall(arguments[:MAX_READ])
    operation = next((word for word in words if word not in WRAPPERS and _OPERATION_WORD.fullmatch(word)), None)
    if operation is None:
        yield from filter(None, [parts.type_in(arguments)])
        return
    text = _operation_name(operation)
    yield main_part("operation", operation, f"applies {text}", text)
    binding = next((word for word in words[: words.index(operation) + 1] if word.split("_")[0] in BINDINGS), None)
    if binding:
        short, meaning = BINDINGS[binding.split("_")[0]]
        yield NamePart("operands", binding, meaning, short)
    yield from filter(None, [_type(arguments, operation, binding)])
    if "LoadWithCast" in arguments:
        yield NamePart("cast", "LoadWithCast", "converts what it loads to another type", "cast")


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
        yield NamePart("width", numbers[0], f"{numbers[0]} elements per load", f"vec{numbers[0]}")
    elif numbers:
        yield NamePart("numbers", ", ".join(numbers), NUMBER_MEANINGS.get(loop, LOOP_NUMBER_MEANING), "/".join(numbers))
    # As nvcc and clang number lambdas: {lambda() (instance 2)}, {lambda()#2}.
    instances = re.findall(r"instance (\d+)|#(\d+)", " ".join(template_arguments(arguments)))
    if instances:
        text = ".".join(first or second for first, second in instances)
        yield NamePart("lambda", text, "which of the lambdas in that function, outermost first", f"λ{text}")


def _lists(arguments: str) -> Iterator[NamePart]:
    """The number of lists of tensors, and the function of each element."""
    metadata = re.search(r"TensorList(?:ScalarList)?Metadata<\D*(\d+)", arguments)
    if metadata:
        yield NamePart("lists", metadata[0], f"{metadata[1]} lists of tensors", f"{metadata[1]} lists")
    inner = re.search(r",\s*(std::\w+<\w+>|at::native::(?:Copy|\w+)<[\w:, ]+>)", arguments)
    if inner:
        yield NamePart("function", inner[1], "the function of each element", inner[1].split("::")[-1].split("<")[0])


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
    operation = main_part("operation", match[1], meanings[match[1]], match[1])
    if not match[2]:
        return (operation,)
    if match[1] == "memcpy":
        short = match[2].replace("Host", "H").replace("Device", "D").replace("Peer", "P").replace("-to-", "to")
        return (operation, main_part("way", match[2], "from where to where", short))
    return (operation, main_part("number", match[2], "which one", match[2]))


def operator_parts(name: str) -> tuple[NamePart, ...]:
    """The part of the name of an operator of PyTorch, which takes the place of a kernel on a CPU: aten::mm."""
    match = re.fullmatch(r"aten::\w+", name)
    return (main_part("operator", name, "an operator of PyTorch, run on the CPU", name),) if match else ()


def triton_parts(name: str) -> tuple[NamePart, ...]:
    """The parts of the name of a kernel of torch.compile: triton_poi_fused_add_mul_3."""
    match = re.fullmatch(r"triton_(poi|red|per|tem|for)_fused_(.+?)(?:_(\d+))?", name)
    if match is None:
        return ()
    kind, operators, number = match.groups()
    text = _operators(_OPERATOR.findall(operators))
    name_parts = [
        main_part("origin", "triton", "written by torch.compile for Triton", "fused"),
        main_part("operators", operators, "the operators that are one kernel here, by the alphabet", text),
        NamePart("loop", kind, TRITON_KINDS.get(kind, "a list of kernels in one"), kind),
    ]
    if number:
        name_parts.append(NamePart("number", number, "its number in the compiled program", f"({number})"))
    return tuple(name_parts)


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
    meanings = {"RING": "in a ring", "TREE": "in a tree", "LL": "low-latency protocol", "LL128": "low-latency protocol",
                "SIMPLE": "the protocol for large messages"}  # fmt: skip
    word_parts = (
        NamePart(f"word {number}", word, meanings.get(word, "type or operation"), word)
        for number, word in enumerate(words)
    )
    return (main_part("operation", operation, "communication between GPUs", f"nccl {operation}"), *word_parts)


def function_parts(name: str) -> tuple[NamePart, ...]:
    """The parts of any function's name: the name without `kernel`, its namespace, type and arguments."""
    namespaces, function, arguments = split_function_name(name)
    if not function:
        return ()
    head = main_part("function", function, "the function's own name", _without_kernel(namespaces, function))
    return (head, *_details(namespaces, arguments))


def _without_kernel(namespaces: str, function: str) -> str:
    """The name without `kernel` at its end. If it is only `kernel`, this with its namespace."""
    if function.lower() == "kernel":
        return f"{namespaces.split('::')[-1]} {function}".strip()
    return re.sub(r"_kernel(?:_cuda)?$|(?:CUDA)?Kernel$", "", function).strip("_") or function


def _details(namespaces: str, arguments: str) -> Iterator[NamePart]:
    if namespaces:
        yield NamePart("namespace", namespaces, "whose function it is", namespaces.split("::")[-1])
    if type_part := parts.type_in(arguments):
        yield type_part
    for number, argument in enumerate(template_arguments(arguments), start=1):
        short = parts.TYPES.get(argument) or f"<{argument.split('::')[-1]}>"
        yield NamePart(f"argument {number}", argument, "of its template", short if len(short) <= MAX_ARGUMENT else "")
