"""Names of PyTorch's kernels: the loop, and in its arguments the function that it applies."""

import re
from collections.abc import Iterator

from kernel_tables.kernel_names.parts import NamePart, split_function_name, template_arguments, type_in

LOOPS = {
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
HEADS = {
    "_scatter_gather_elementwise_kernel": "scatter/gather",
    "distribution_elementwise_grid_stride_kernel": "random",
}
BINDINGS = {
    "AUnaryFunctor": ("scalar-tensor", "of a number and a tensor"),
    "BUnaryFunctor": ("tensor-scalar", "of a tensor and a number"),
    "BinaryFunctor": ("", "of two tensors"),
    "CUDAFunctorOnSelf": ("tensor-scalar", "of a tensor and a number"),
    "CUDAFunctorOnOther": ("scalar-tensor", "of a number and a tensor"),
}
WRAPPERS = {
    *BINDINGS, "func_wrapper_t", "gpu_kernel_impl", "gpu_kernel_impl_nocast", "opmath_gpu_kernel_with_scalars",
    "ReduceOp", "_cuda_scatter_gather_internal_kernel", "normal_and_transform", "CUDAGeneratorImpl",
    "uniform_and_transform", "gpu_index_kernel",
}  # fmt: skip  # around the function that says what is computed
RENAMED = {
    "direct_copy": "copy", "bfloat16_copy": "copy", "float16_copy": "copy", "MaxNan": "max", "MinNan": "min",
    "launch_clamp_scalar": "clamp", "NormTwo": "norm2", "Welford": "var", "pow_tensor_scalar": "pow",
    "TensorAssign": "assign", "ReduceAdd": "add", "CompareEq": "eq", "CompareNE": "ne", "ArgMax": "argmax",
    "ArgMin": "argmin",
}  # fmt: skip
NUMBERS = {"reduce_kernel": "most threads of a block, outputs per thread, inputs per load"}
NUMBERS_OF_A_LOOP = "threads of a block, elements per thread"
MAX_READ = 2000  # characters of the arguments, in which the operation is searched
_WORD = re.compile(r"[A-Za-z_]\w*")
_SUFFIX = re.compile(
    r"_?(?:kernel_cuda|cuda_kernel|kernel_impl|CUDAKernelImpl|KernelImplInternal|KernelImpl|kernel|cuda_out|cuda"
    r"|functor|Functor|Ops)$"
)
_TELLING = re.compile(
    r"CUDAFunctor\w*_\w+|\w*Functor|\w+Ops|\w+_kernel(?:_cuda|_impl)*|\w+_cuda_kernel|\w+CUDAKernelImpl|\w+KernelImplInternal"
    r"|\w+_cuda_out|\w+_functor|\w+KernelImpl|launch_\w+|ReduceAdd|ReduceMultiply|TensorAssign"
)


def pytorch_parts(name: str) -> tuple[NamePart, ...]:
    """The parts of the name of one of PyTorch's loops, reductions or lists of tensors; none for other names."""
    _, loop, rest = split_function_name(name)
    if loop in LOOPS:
        access, meaning = LOOPS[loop]
        head = NamePart("loop", loop, "a function of every element", HEADS.get(loop, "elementwise"), True)
        return (head, *_operation(rest), NamePart("access", loop, meaning, access), *_numbers(loop, rest))
    if loop == "reduce_kernel":
        head = NamePart("loop", loop, "many values to one", "reduce", True)
        return (head, *_operation(rest), *_numbers(loop, rest))
    if loop == "multi_tensor_apply_kernel":
        head = NamePart("loop", loop, "a function of every element of a list of tensors", "foreach", True)
        return (head, *_operation(rest), *_lists(rest))
    return ()


def _operation(rest: str) -> Iterator[NamePart]:
    """The function that is applied, how its operands are bound, and their type."""
    words = _WORD.findall(rest[:MAX_READ])
    operation = next((word for word in words if word not in WRAPPERS and _TELLING.fullmatch(word)), None)
    if operation is None:
        yield from filter(None, [type_in(rest)])
        return
    text = _operation_name(operation)
    yield NamePart("operation", operation, f"applies {text}", text, True)
    binding = next((word for word in words[: words.index(operation) + 1] if word.split("_")[0] in BINDINGS), None)
    if binding:
        yield NamePart("operands", binding, *reversed(BINDINGS[binding.split("_")[0]]))
    yield from filter(None, [_type(rest, operation, binding)])
    if "LoadWithCast" in rest:
        yield NamePart("cast", "LoadWithCast", "converts what it loads to another type", "cast")


def _type(rest: str, operation: str, binding: str | None) -> NamePart | None:
    """The type of the operands: of their binding, since the operation may compute in another, else of the template of
    the operation, else of the lambda in it, else the first type."""

    def after(word: str) -> str:
        arguments = re.match(r"<[^<>]*", rest[rest.index(word) + len(word) :])
        return arguments[0] if arguments else ""

    lambdas = re.findall(r"lambda\(([^()]+)\)", rest[rest.index(operation) :])
    texts = [after(binding or rest), after(operation), *lambdas[:1], rest]
    return next(filter(None, map(type_in, texts)), None)


def _operation_name(word: str) -> str:
    """mul from MulFunctor, exp from exp_kernel_cuda, silu backward from silu_backward_kernel."""
    word = re.sub(r"^CUDAFunctor(?:OnSelf|OnOther)?_", "", word)
    bare = _SUFFIX.sub("", word) or word
    bare = RENAMED.get(bare, bare)
    if bare[0].isupper():
        bare = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", bare).lower()
    return re.sub(r"_(backward)$", r" \1", bare)


def _numbers(loop: str, rest: str) -> Iterator[NamePart]:
    """The numbers among the arguments of the loop itself, and the number of its lambda, if there are several."""
    numbers = [argument for argument in template_arguments(rest) if argument.isdigit()]
    if loop == "vectorized_elementwise_kernel" and numbers:
        yield NamePart("width", numbers[0], f"{numbers[0]} elements per load", f"vec{numbers[0]}")
    elif numbers:
        yield NamePart("numbers", ", ".join(numbers), NUMBERS.get(loop, NUMBERS_OF_A_LOOP), "/".join(numbers))
    instances = re.findall(r"instance (\d+)|#(\d+)", " ".join(template_arguments(rest)))
    if instances:
        text = ".".join(first or second for first, second in instances)
        yield NamePart("lambda", text, "which of the lambdas in that function, outermost first", f"λ{text}")


def _lists(rest: str) -> Iterator[NamePart]:
    metadata = re.search(r"TensorList(?:ScalarList)?Metadata<\D*(\d+)", rest)
    if metadata:
        yield NamePart("lists", metadata[0], f"{metadata[1]} lists of tensors", f"{metadata[1]} lists")
    inner = re.search(r",\s*(std::\w+<\w+>|at::native::(?:Copy|\w+)<[\w:, ]+>)", rest)
    if inner:
        yield NamePart("function", inner[1], "the function of each element", inner[1].split("::")[-1].split("<")[0])
