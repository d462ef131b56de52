"""Short, readable names of kernels, different for different kernels of a table; what `kernel-tables names` prints.

A full name has parts, each with a key and a text. Main parts make the short name, such as "sgemm 256×128 nn". Others
are added where short names would be equal.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import count, zip_longest
from typing import NamedTuple

from kernel_tables.classes import FIELDS, UNKNOWN, rule_for
from kernel_tables.output import visible

MAX_CHARACTERS = 40  # of a short name; parts that are added to tell equal ones apart do not count
TYPES = {
    "float": "fp32", "double": "fp64", "c10::Half": "fp16", "__half": "fp16", "c10::BFloat16": "bf16",
    "__nv_bfloat16": "bf16", "__hip_bfloat16": "bf16", "cutlass::bfloat16_t": "bf16", "cutlass::half_t": "fp16",
    "c10::Float8_e4m3fn": "fp8", "c10::Float8_e5m2": "fp8", "c10::complex<float>": "complex64", "long": "int64",
    "int": "int32", "short": "int16", "bool": "bool", "unsigned char": "uint8", "signed char": "int8",
}  # fmt: skip
LOOPS = {  # by kernel of PyTorch: what a short name calls it, and how it gets at its operands
    "vectorized_elementwise_kernel": ("elementwise", "vectorized"),  # they lie densely: several elements per load
    "vectorized_templated_elementwise_kernel": ("elementwise", "vectorized"),  # densely, of several types
    "unrolled_elementwise_kernel": ("elementwise", "unrolled"),  # densely, but of several types, or not aligned
    "elementwise_kernel": ("elementwise", "strided"),  # an offset is computed for every element
    "elementwise_kernel_manual_unroll": ("elementwise", "strided"),
    "elementwise_kernel_with_index": ("elementwise", "indexed"),  # the function gets the index of its element
    "index_elementwise_kernel": ("elementwise", "indexed"),
    "_scatter_gather_elementwise_kernel": ("scatter/gather", "scattered"),
    "distribution_elementwise_grid_stride_kernel": ("random", "random"),
    "reduce_kernel": ("reduce", None),
}
BINDINGS = {  # by word: which operands are numbers, which tensors; "" if all are tensors
    "AUnaryFunctor": "scalar-tensor", "BUnaryFunctor": "tensor-scalar", "BinaryFunctor": "",
    "CUDAFunctorOnSelf": "tensor-scalar", "CUDAFunctorOnOther": "scalar-tensor",
}  # fmt: skip


class Part(NamedTuple):
    key: str  # what the part says: tile, layout, type
    text: str
    is_main: bool = False


class NameFact(NamedTuple):
    about: str  # short name, class or rule
    value: str
    reason: str


def name_facts(name: str, extra_rules: Sequence[Mapping[str, str]] = ()) -> list[NameFact]:
    """A kernel's short name, its class, and what the rule that decided the class searches."""
    rule = rule_for(name, extra_rules)
    kernel_class, reason = (rule.kernel_class, rule.reason) if rule else (UNKNOWN, "no rule fits; --class adds one")
    more = "more is added where another kernel of a table would have the same"
    facts = [NameFact("short name", _short_name(name), more), NameFact("class", kernel_class, reason)]
    for field, pattern in rule.patterns.items() if rule else ():
        facts.append(NameFact("rule", " ".join(pattern.split()), f"searched in {FIELDS[field]}"))
    return facts


def short_names(names: Iterable[str]) -> dict[str, str]:
    """A short name by full name, all different. Equal ones are told apart by their ends, then by other parts, and what
    is still equal by numbers."""
    short: dict[str, str] = {}
    for text, group in _names_by(_short_name, dict.fromkeys(names)).items():
        short |= _with_different_ends(text, group)
    longer: dict[str, str] = {}
    for text, group in _names_by(short.get, short).items():
        longer |= _with_different_parts(text, group)
    used, numbered, groups = set(), {}, _names_by(longer.get, sorted(longer))
    for text, group in sorted(groups.items()):
        with_numbers = (f"{text} #{number}" for number in count(1))
        for name in group:  # not the text of another group either
            numbered[name] = (
                text if len(group) == 1 else next(one for one in with_numbers if one not in used | {*groups})
            )
            used.add(numbered[name])
    return {name: numbered[name] for name in short}


def _names_by(text_of: Callable[[str], str], names: Iterable[str]) -> dict[str, list[str]]:
    """The names by the text that `text_of` returns for them, in order."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(text_of(name), []).append(name)
    return groups


def _short_name(name: str) -> str:
    return _truncated(_main_text(name))


def _truncated(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 1] + "…"


def _main_text(name: str) -> str:
    """The text of the name's main parts, not truncated; the name itself if it has none."""
    text = " ".join(part.text for part in _parts_of(name) if part.is_main)
    return visible(" ".join((text or name).split()))


def _with_different_ends(short: str, names: list[str]) -> dict[str, str]:
    """The short names of `names`, which are all `short` so far. If that is truncated, each shows its beginning, and its
    end from the word where they differ on."""
    texts = {name: _main_text(name) for name in names}
    if len(short) < MAX_CHARACTERS or len(set(texts.values())) == 1:
        return dict.fromkeys(names, short)
    differ = next(index for index, letters in enumerate(zip_longest(*texts.values())) if len(set(letters)) > 1)
    longer = {}
    for name, text in texts.items():
        word = text.rfind("_", 0, differ) + 1
        longer[name] = _truncated(f"{text[:18]}…{text[word if differ - word < 18 else differ :]}")
    return longer


def _with_different_parts(short: str, names: list[str]) -> dict[str, str]:
    """The short names of `names`, which are all `short`: with the first other part in which they differ, and for those
    that are then still equal with a further part, and so on."""
    if len(names) == 1:
        return {names[0]: short}
    texts = {name: {part.key: visible(part.text) for part in _parts_of(name) if not part.is_main} for name in names}
    first = ("library", "operands", "access", "type")
    for key in dict.fromkeys((*first, *(key for parts in texts.values() for key in parts))):
        groups = _names_by(lambda name, key=key: texts[name].get(key, ""), names)
        if len(groups) > 1:
            longer: dict[str, str] = {}
            for text, group in groups.items():
                longer |= _with_different_parts(f"{short} {text}".strip(), group)
            return longer
    return dict.fromkeys(names, short)


@lru_cache(maxsize=4096)
def _parts_of(name: str) -> list[Part]:
    """The parts of a full name, of which the first 4,000 characters are read; none if its form is unknown."""
    name = name[:4000]
    return _parts_of_words(name) or _parts_of_matrix_product(name) or _parts_of_function(name)


def _parts_of_words(name: str) -> list[Part]:
    """The parts of a memory operation or a replay ("[CUDA memcpy Host-to-Device]"), an operator ("aten::mm"), and a
    kernel of torch.compile ("triton_poi_fused_add_mul_3") or NCCL ("ncclDevKernel_AllReduce_Sum_f32_RING_LL")."""
    if match := re.fullmatch(r"\[CUDA (memcpy|memset|graph)(?: (.+))?\]", name):
        way = match[2] or ""
        if match[1] == "memcpy":
            way = way.replace("Host", "H").replace("Device", "D").replace("Peer", "P").replace("-to-", "to")
        return [Part("operation", f"{match[1]} {way}", is_main=True)]
    if re.fullmatch(r"aten::\w+", name):
        return [Part("operator", name, is_main=True)]
    if match := re.match(r"nccl(?:Dev)?Kernel_(\w+)", name):
        operation, *words = match[1].split("_")
        further = [Part(f"word {number}", word) for number, word in enumerate(words)]
        return [Part("operation", f"nccl {operation}", is_main=True), *further]
    match = re.fullmatch(r"triton_(poi|red|per|tem|for)_fused_(.+?)(?:_(\d+))?", name)
    if match is None:
        return []
    # ATen's operators with underscores within; one that begins with another precedes it.
    operators = re.findall(
        r"(?:native_layer_norm_backward|native_layer_norm|_softmax_backward_data|_log_softmax|_softmax|_to_copy"
        r"|_unsafe_view|embedding_dense_backward|empty_like|convolution_backward|native_dropout|native_group_norm"
        r"|threshold_backward|index_put|index_select|masked_fill|new_zeros|slice_backward|scalar_tensor"
        r"|_scaled_dot_product|_adaptive_avg_pool2d|max_pool2d_with_indices|bernoulli|zeros_like|ones_like)(?=_|$)"
        r"|[^_]+",
        match[2],
    )
    shown = operators[:4]
    while len(shown) > 1 and len(" ".join(shown)) > 32:
        shown.pop()
    more = f" +{len(operators) - len(shown)}" if len(shown) < len(operators) else ""
    number = [Part("number", f"({match[3]})")] if match[3] else []
    return [Part("operators", f"fused {' '.join(shown)}{more}", is_main=True), Part("loop", match[1]), *number]


def _parts_of_matrix_product(name: str) -> list[Part]:
    """The parts of a matrix multiply or convolution of NVIDIA's; none for other names, or without a tile.

    Of cuBLAS `ampere_sgemm_128x64_nn`, of CUTLASS `cutlass_80_simt_sgemm_256x128_8x4_nn_align1`, of XMMA
    `sm80_xmma_gemm_f32f32_..._tn_n_tilesize128x64x8_...`, of nvJet `nvjet_tst_192x192_64x4_2x1_v_bz_TNN`. CUTLASS
    documents its names, the others are similar.
    """
    core = re.search(  # from the word that names the origin on
        r"(?:cutlass_\w*?(?:gemm|fprop|dgrad|wgrad)|(?:maxwell|volta|turing|ampere|hopper)_\w*?gemm|sm\d+_xmma_|nvjet_"
        r"|cudnn_\w*?scudnn_)\w*",
        name,
    )
    if core is None:
        return []
    core, sizes, parts = core[0], 0, []
    if operation := _matrix_operation(core):
        parts.append(Part("type", operation, is_main=True))
    for token in re.findall(r"split_k|stages_\d+x\d+|[^_]+", core):
        if re.fullmatch(r"(?:stages_)?(\d+)x(\d+)", token) and (sizes := sizes + 1) in (2, 3):
            parts.append(Part({2: "stages", 3: "cluster"}[sizes], token))  # the first is the tile
        elif tile := re.fullmatch(r"(?:tilesize)?(\d+)x(\d+)(?:x(\d+))?", token):
            parts.append(Part("tile", f"{tile[1]}×{tile[2]}", is_main=True))
        elif core.startswith("cutlass_") and re.fullmatch(r"\d\d\d?", token):
            parts.append(Part("architecture", f"sm{token}"))
        elif re.fullmatch(r"[ntNT]{2,3}", token):  # of each operand: as it is stored, or transposed
            parts.append(Part("layout", token.lower(), is_main=True))
        elif re.fullmatch(r"split_?[kK]", token):  # blocks share the depth; their sums are added afterwards
            parts.append(Part("split", "split-k", is_main=True))
        elif re.fullmatch(r"bias|relu|gelu", token):
            parts.append(Part("epilogue", token, is_main=True))
        elif word := re.fullmatch(
            r"(?P<architecture>maxwell|volta|turing|ampere|hopper|sm\d+)|(?P<stages>stage\d+)"
            r"|(?P<warps>warp(?:group)?size\w+)|(?P<cores>wmma)|(?P<instruction>tensor\d+x\d+x\d+)"
            r"|(?P<alignment>align[abc]?\d+)|(?P<slices>sliced\w+)|(?P<schedule>coop[AB]?|2cta)|(?P<loads>ldg\d+)"
            r"|(?P<variant>small|medium|large|interior|xregs)",
            token,
        ):
            parts.append(Part(word.lastgroup, token))
    if not any(part.key == "tile" for part in parts):
        return []
    libraries = ("xmma",) if "xmma" in core else ("cudnn", "nvjet", "cutlass")
    library = next((word for word in libraries if word in core or word in name.lower()), "cublas")
    order = {"type": 0, "tile": 1, "layout": 2}
    return [*sorted(parts, key=lambda part: order.get(part.key, 3)), Part("library", library)]


def _matrix_operation(core: str) -> str | None:
    """The operation with the type of its operands: sgemm, bf16 gemm, tf32 fprop."""
    operands_of = {"f16": "fp16", "f32": "fp32", "f64": "fp64", "i8": "int8"}
    if xmma := re.match(
        r"sm\d+_xmma_(?:(fprop|dgrad|wgrad)_\w*?)?(?:implicit_)?gemm_(?:indexed_)?([a-z]+\d+?)(?=f|i|b|t|_)", core
    ):  # f32f32_tf32f32: fp32 in memory, rounded when multiplied
        operands = "tf32" if "_tf32f32" in core else operands_of.get(xmma[2], xmma[2])
        return (
            f"{operands} {xmma[1]}" if xmma[1] else {"fp32": "sgemm", "fp64": "dgemm"}.get(operands, f"{operands} gemm")
        )
    if nvjet := re.match(r"nvjet_(?:sm\d+_)?([a-z]+)_", core):  # not documented
        letters = {"t": "bf16", "h": "fp16", "s": "fp32", "d": "fp64", "q": "fp8", "o": "fp8"}
        return f"{letters.get(nvjet[1][0], nvjet[1])} gemm"
    if conv := re.search(r"_s\d{4,5}(fprop|dgrad|wgrad)_\w*?_(tf32|f16|bf16)_", core):
        return f"{operands_of.get(conv[2], conv[2])} {conv[1]}"
    if "scudnn" in core:  # a convolution in fp32 on the ordinary cores
        return "scudnn"
    # The type in front, the letter of the precision, the instruction, the type within, the type behind.
    kind = re.search(
        r"(?:(f16|fp16|bf16|tf32|i8)_)?(gc|[sdhczi])(\d{4,6})?(f16|bf16|tf32)?gemm(?:_relu)?(?:_(f16|fp16|bf16|tf32))?",
        core,
    )
    if kind is None:
        return None
    before, letter, instruction, inside, after = kind.groups()
    if instruction is None:
        return f"{letter}gemm"
    letters = {
        "s": "tf32", "d": "fp64", "h": "fp16", "c": "complex64", "z": "complex128", "i": "int8", "gc": "complex64",
    }  # fmt: skip
    written = before or inside or after
    return f"{operands_of.get(written, written) if written else letters[letter]} gemm"


def _parts_of_function(name: str) -> list[Part]:
    """The parts of a function of C++. Of PyTorch's loops, reductions and lists of tensors: what they apply to what. Of
    others: the name without `kernel`, its namespace, type and arguments."""
    namespaces, function, arguments = _split(name)
    if not function:
        return []
    template = _template_arguments(arguments)
    if function in LOOPS:
        head, access = LOOPS[function]
        parts = [Part("loop", head, is_main=True), *_operation(arguments)]
        parts += [Part("access", access)] if access else []
        numbers = [argument for argument in template if argument.isdigit()]
        if numbers:
            is_width = function == "vectorized_elementwise_kernel"
            parts.append(Part("width", f"vec{numbers[0]}") if is_width else Part("numbers", "/".join(numbers)))
        # As nvcc and clang number lambdas: {lambda() (instance 2)}, {lambda()#2}.
        instances = re.findall(r"(?:instance |#)(\d+)", " ".join(template))
        return [*parts, Part("lambda", "λ" + ".".join(instances))] if instances else parts
    if function == "multi_tensor_apply_kernel":
        parts = [Part("loop", "foreach", is_main=True), *_operation(arguments)]
        if lists := re.search(r"TensorList(?:ScalarList)?Metadata<\D*(\d+)", arguments):
            parts.append(Part("lists", f"{lists[1]} lists"))
        if inner := re.search(r",\s*(std::\w+<\w+>|at::native::(?:Copy|\w+)<[\w:, ]+>)", arguments):
            parts.append(Part("function", inner[1].split("::")[-1].split("<")[0]))
        return parts
    innermost = namespaces.split("::")[-1]
    short = re.sub(r"_kernel(?:_cuda)?$|(?:CUDA)?Kernel$", "", function).strip("_") or function
    if function.lower() == "kernel":
        short = f"{innermost} {function}".strip()
    parts = [Part("function", short, is_main=True)]
    parts += [Part("namespace", innermost)] if namespaces else []
    parts += [Part("type", type_)] if (type_ := _type_in(arguments)) else []
    for number, argument in enumerate(template, start=1):
        text = TYPES.get(argument) or f"<{argument.split('::')[-1]}>"
        parts += [Part(f"argument {number}", text)] if len(text) <= 14 else []
    return parts


def _split(name: str) -> tuple[str, str, str]:
    """The namespaces, the identifier and the rest of the name of a function, mangled or not; the identifier is empty if
    the text is not the name of a function."""
    plain = re.sub(r"<unnamed>|\(anonymous namespace\)|\{anonymous\}", "", name)
    plain = re.sub(r"^(?:void |static |(?:typename )?std::enable_if<.{0,300}?>::type )+", "", plain)
    if mangled := re.fullmatch(r"_ZN?[KVL]*(\d.*)", plain):  # Itanium: identifiers, each after its length
        rest, identifiers = mangled[1], []
        while digits := re.match(r"\d{1,3}", rest):
            end = len(digits[0]) + int(digits[0])
            identifiers.append(rest[len(digits[0]) : end])
            rest = rest[end:]
        return "::".join(identifiers[:-1]), identifiers[-1], rest
    qualified = re.match(r"[^<(]*", plain)[0]
    namespaces, _, identifier = qualified.rpartition("::")
    if not re.fullmatch(r"[A-Za-z_]\w*", identifier):
        return "", "", name
    return namespaces.strip(":"), identifier, plain[len(qualified) :]


def _template_arguments(text: str) -> list[str]:
    """The arguments of the template with which `text` begins, without types before numbers: float and 4 for
    `<float, (int)4>`. Empty if it begins with no template."""
    parts, depth, start = [], 0, 1
    for index, character in enumerate(text if text.startswith("<") else ""):
        depth += character in "<([{"
        depth -= character in ")]}" or (character == ">" and text[index - 1] != "-")
        if depth == 0 or (depth == 1 and character == ","):
            parts.append(text[start:index].strip())
            start = index + 1
        if depth == 0:
            break
    return [re.sub(r"^\((?:unsigned )?\w+\)(?=-?\d)", "", argument) for argument in parts if argument]


def _type_in(text: str) -> str | None:
    """The first type of numbers in this text of C++, as PyTorch, NVIDIA or AMD call it; None if there is none. One in
    parentheses before a number, `(int)128`, does not count."""
    names = "|".join(map(re.escape, sorted(TYPES, key=len, reverse=True)))
    text = re.sub(r"\((?:unsigned )?\w+\)(?=\d)", "", text)
    match = re.search(rf"\bOpaqueType<(\d+)|(?<![\w:])(?:{names})(?!\w|::)", text)
    return match and (f"{match[1]}-byte" if match[1] else TYPES[match[0]])


def _operation(arguments: str) -> list[Part]:
    """The function that is applied, how its operands are bound, and their type.

    The type is taken from the template of the binding, since the operation may compute in another type; else from that
    of the operation; else from the parameters of its lambda; else it is the first type of all.
    """
    wrappers = {  # words around the function that says what is computed
        *BINDINGS, "func_wrapper_t", "gpu_kernel_impl", "gpu_kernel_impl_nocast", "opmath_gpu_kernel_with_scalars",
        "ReduceOp", "_cuda_scatter_gather_internal_kernel", "normal_and_transform", "CUDAGeneratorImpl",
        "uniform_and_transform", "gpu_index_kernel",
    }  # fmt: skip
    is_operation = re.compile(
        r"CUDAFunctor\w*_\w+|\w*Functor|\w+Ops|\w+_kernel(?:_cuda|_impl)*|\w+_cuda_kernel|\w+CUDAKernelImpl"
        r"|\w+KernelImplInternal|\w+_cuda_out|\w+_functor|\w+KernelImpl|launch_\w+|ReduceAdd|ReduceMultiply"
        r"|TensorAssign"
    ).fullmatch
    words = re.findall(r"[A-Za-z_]\w*", arguments[:2000])
    operation = next((word for word in words if word not in wrappers and is_operation(word)), None)
    if operation is None:
        return [Part("type", type_)] if (type_ := _type_in(arguments)) else []
    parts = [Part("operation", _operation_name(operation), is_main=True)]
    binding = next((word for word in words[: words.index(operation) + 1] if word.split("_")[0] in BINDINGS), None)
    if binding:
        parts.append(Part("operands", BINDINGS[binding.split("_")[0]]))
    after = [arguments[arguments.index(word) + len(word) :] for word in (binding, operation) if word]
    templates = [template[0] for text in after if (template := re.match(r"<[^<>]*", text))]
    lambdas = re.findall(r"lambda\(([^()]+)\)", arguments[arguments.index(operation) :])[:1]
    if type_ := next(filter(None, map(_type_in, [*templates, *lambdas, arguments])), None):
        parts.append(Part("type", type_))
    return [*parts, Part("cast", "cast")] if "LoadWithCast" in arguments else parts


def _operation_name(word: str) -> str:
    """mul from MulFunctor, exp from exp_kernel_cuda, silu backward from silu_backward_kernel."""
    renamed = {  # operations that are called otherwise in PyTorch's interface
        "direct_copy": "copy", "bfloat16_copy": "copy", "float16_copy": "copy", "MaxNan": "max", "MinNan": "min",
        "launch_clamp_scalar": "clamp", "NormTwo": "norm2", "Welford": "var", "pow_tensor_scalar": "pow",
        "TensorAssign": "assign", "ReduceAdd": "add", "CompareEq": "eq", "CompareNE": "ne", "ArgMax": "argmax",
        "ArgMin": "argmin",
    }  # fmt: skip
    suffix = (
        r"_?(?:kernel_cuda|cuda_kernel|kernel_impl|CUDAKernelImpl|KernelImplInternal|KernelImpl|kernel|cuda_out|cuda"
        r"|functor|Functor|Ops)$"
    )
    word = re.sub(r"^CUDAFunctor(?:OnSelf|OnOther)?_", "", word)
    bare = re.sub(suffix, "", word) or word
    bare = renamed.get(bare, bare)
    if bare[0].isupper():
        bare = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", bare).lower()
    return re.sub(r"_(backward)$", r" \1", bare)
