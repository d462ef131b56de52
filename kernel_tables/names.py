"""Short, readable names of kernels, different for different kernels of a table; what `kernel-tables names` prints.

A short name has the main parts of a full name, such as "sgemm 256×128 nn". Where several names have the same, what else
is known of each is added, and a number if that is the same, too.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import count

from kernel_tables.classes import FIELDS, UNKNOWN, built_in_rules, first_rule, users_rules
from kernel_tables.output import visible

MAX_CHARACTERS = 40  # of a short name; what is added to tell equal ones apart does not count
LOOPS = {  # by kernel of PyTorch: what a short name calls it, and how it gets at its operands
    "vectorized_elementwise_kernel": ("elementwise", "vectorized"),  # they lie densely: several elements per load
    "vectorized_templated_elementwise_kernel": ("elementwise", "vectorized"),  # densely, of several types
    "unrolled_elementwise_kernel": ("elementwise", "unrolled"),  # densely, but of several types, or not aligned
    "elementwise_kernel": ("elementwise", "strided"),  # an offset is computed for every element
    "elementwise_kernel_manual_unroll": ("elementwise", "strided"),
    "elementwise_kernel_with_index": ("elementwise", "indexed"),  # the function gets the index of its element
    "index_elementwise_kernel": ("elementwise", "indexed"),
    "_scatter_gather_elementwise_kernel": ("scatter/gather", ""),
    "distribution_elementwise_grid_stride_kernel": ("random", ""),
    "reduce_kernel": ("reduce", ""),
    "multi_tensor_apply_kernel": ("foreach", ""),
}
BINDINGS = {  # by word: which operands are numbers, which tensors; "" if all are tensors
    "AUnaryFunctor": "scalar-tensor", "BUnaryFunctor": "tensor-scalar", "BinaryFunctor": "",
    "CUDAFunctorOnSelf": "tensor-scalar", "CUDAFunctorOnOther": "scalar-tensor",
}  # fmt: skip
# Words around the function that says what is computed.
WRAPPERS = {*BINDINGS, "gpu_kernel_impl", "gpu_index_kernel", "_cuda_scatter_gather_internal_kernel"}
RENAMED = {  # operations that are called otherwise in PyTorch's interface
    "direct_copy": "copy", "bfloat16_copy": "copy", "float16_copy": "copy", "MaxNan": "max", "MinNan": "min",
    "launch_clamp_scalar": "clamp", "NormTwo": "norm2", "Welford": "var", "pow_tensor_scalar": "pow",
    "TensorAssign": "assign", "ReduceAdd": "add", "CompareEq": "eq", "CompareNE": "ne", "ArgMax": "argmax",
    "ArgMin": "argmin",
}  # fmt: skip


def name_facts(name: str, extra_rules: Sequence[Mapping[str, str]] = ()) -> dict[str, list[str]]:
    """A kernel's short name, its class, and what the rule that decided the class searches, as a table."""
    rule = first_rule(name, (*users_rules(extra_rules), *built_in_rules()))
    kernel_class, reason = (rule.kernel_class, rule.reason) if rule else (UNKNOWN, "no rule fits; --class adds one")
    more = "more is added where another kernel of a table would have the same"
    facts = [("short name", short_names([name])[name], more), ("class", kernel_class, reason)]
    for field, pattern in rule.patterns.items() if rule else ():
        facts.append(("rule", " ".join(pattern.split()), f"searched in {FIELDS[field]}"))
    return dict(zip(("about", "value", "reason"), map(list, zip(*facts, strict=True)), strict=True))


def short_names(names: Iterable[str]) -> dict[str, str]:
    """A short name by full name, all different: equal ones get what else is known, then numbers, by full name."""
    parts = {name: parts_of(name) for name in dict.fromkeys(names)}
    counts = Counter(main for main, _ in parts.values())
    short = {name: f"{main} {more}".strip() if counts[main] > 1 else main for name, (main, more) in parts.items()}
    counts, numbers = Counter(short.values()), defaultdict(lambda: count(1))
    for name in sorted(short):
        if counts[text := short[name]] > 1:  # and a text with a number may be another name's without one
            short[name] = next(one for number in numbers[text] if (one := f"{text} #{number}") not in counts)
    return short


def parts_of(name: str) -> tuple[str, str]:
    """The short name, if no other kernel has the same, and what is added if one has. 4,000 characters are read."""
    begin = name[:4000]
    main, more = _words(begin) or _matrix_product(begin) or _function(begin) or ([name], "")
    text = visible(" ".join(" ".join(main).split()))
    return text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 1] + "…", visible(more)


# What reads a kind of names: it returns the main parts and what may be added, None for other names


def _words(name: str) -> tuple[list[str], str] | None:
    """Of a memory operation or a replay ("[CUDA memcpy Host-to-Device]"), an operator ("aten::mm"), and a kernel of
    torch.compile ("triton_poi_fused_add_mul_3") or NCCL ("ncclDevKernel_AllReduce_Sum_f32_RING_LL")."""
    if match := re.fullmatch(r"\[CUDA (memcpy|memset|graph)(?: (.+))?\]", name):
        way = match[2] or ""
        if match[1] == "memcpy":
            way = way.replace("Host", "H").replace("Device", "D").replace("Peer", "P").replace("-to-", "to")
        return [match[1], way], ""
    if re.fullmatch(r"aten::\w+", name):
        return [name], ""
    if match := re.match(r"nccl(?:Dev)?Kernel_([^\W_]+)(\w*)", name):
        return ["nccl", match[1]], match[2].replace("_", " ").strip()
    if not (match := re.fullmatch(r"triton_(?:poi|red|per|tem|for)_fused_(.+?)(?:_(\d+))?", name)):
        return None
    operators = re.findall(  # those of ATen with underscores within; one that begins with another precedes it
        r"(?:native_layer_norm_backward|native_layer_norm|_log_softmax|_softmax|_to_copy|_unsafe_view|empty_like"
        r"|_scaled_dot_product)(?=_|$)|[^_]+",
        match[1],
    )
    shown = operators[:4]
    while len(shown) > 1 and len(" ".join(shown)) > 32:
        shown.pop()
    left_out = [f"+{len(operators) - len(shown)}"] if len(shown) < len(operators) else []
    return ["fused", *shown, *left_out], f"({match[2]})" if match[2] else ""


def _matrix_product(name: str) -> tuple[list[str], str] | None:
    """Of a matrix multiply or convolution of NVIDIA's: by cuBLAS `ampere_sgemm_128x64_nn`, by CUTLASS
    `cutlass_80_simt_sgemm_256x128_8x4_nn_align1`, by XMMA `sm80_xmma_gemm_f32f32_..._tn_n_tilesize128x64x8_...`, by
    nvJet `nvjet_tst_192x192_64x4_2x1_v_bz_TNN`. CUTLASS documents its names, the others are similar."""
    core = re.search(  # from the word that names the origin on
        r"(?:cutlass_\w*?(?:gemm|fprop|dgrad|wgrad)|(?:maxwell|volta|turing|ampere|hopper)_\w*?gemm|sm\d+_xmma_"
        r"|nvjet_|cudnn_\w*?scudnn_)\w*",
        name,
    )
    tile = core and re.search(r"_(?:tilesize)?(\d+)x(\d+)(?:x\d+)?(?=_|$)", core[0])
    if not tile:
        return None
    # The layout says of each operand whether it is as it is stored, or transposed. With split-k, blocks share the
    # depth, and their sums are added afterwards.
    words = re.findall(r"(?<=_)(?:[ntNT]{2,3}|split_?[kK]|bias|relu|gelu)(?=_|$)", core[0])
    words = ["split-k" if "split" in word else word.lower() for word in words]
    words.sort(key=lambda word: not re.fullmatch("[nt]+", word))
    libraries = ("xmma",) if "xmma" in core[0] else ("cudnn", "nvjet", "cutlass")
    library = next((word for word in libraries if word in core[0] or word in name.lower()), "cublas")
    return [*_matrix_operation(core[0]), f"{tile[1]}×{tile[2]}", *words], library


def _matrix_operation(core: str) -> list[str]:
    """The operation with the type of its operands: sgemm, bf16 gemm, tf32 fprop; nothing if it is not known."""
    types = {"f16": "fp16", "f32": "fp32", "f64": "fp64", "i8": "int8"}
    if xmma := re.match(
        r"sm\d+_xmma_(?:(fprop|dgrad|wgrad)_\w*?)?(?:implicit_)?gemm_(?:indexed_)?([a-z]+\d+?)(?=f|i|b|t|_)", core
    ):  # f32f32_tf32f32: fp32 in memory, rounded when multiplied
        type_ = "tf32" if "_tf32f32" in core else types.get(xmma[2], xmma[2])
        blas = {"fp32": "sgemm", "fp64": "dgemm"}
        return [f"{type_} {xmma[1]}" if xmma[1] else blas.get(type_, f"{type_} gemm")]
    if nvjet := re.match(r"nvjet_(?:sm\d+_)?([a-z]+)_", core):  # not documented
        letters = {"t": "bf16", "h": "fp16", "s": "fp32", "d": "fp64", "q": "fp8", "o": "fp8"}
        return [letters.get(nvjet[1][0], nvjet[1]), "gemm"]
    if convolution := re.search(r"_s\d{4,5}(fprop|dgrad|wgrad)_\w*?_(tf32|f16|bf16)_", core):
        return [types.get(convolution[2], convolution[2]), convolution[1]]
    if "scudnn" in core:  # a convolution in fp32 on the ordinary cores
        return ["scudnn"]
    gemm = re.search(  # type in front, letter of the precision, instruction, type within, type behind
        r"(?:(f16|fp16|bf16|tf32|i8)_)?(gc|[sdhczi])(\d{4,6})?(f16|bf16|tf32)?gemm(?:_relu)?"
        r"(?:_(f16|fp16|bf16|tf32))?",
        core,
    )
    if gemm is None or gemm[3] is None:
        return [f"{gemm[2]}gemm"] if gemm else []
    letters = {"s": "tf32", "d": "fp64", "h": "fp16", "c": "complex64", "z": "complex128", "i": "int8"}
    written = gemm[1] or gemm[4] or gemm[5] or letters.get(gemm[2], "complex64")
    return [types.get(written, written), "gemm"]


def _function(name: str) -> tuple[list[str], str] | None:
    """Of a function of C++: what PyTorch's loops apply to what, else the name without `kernel`."""
    namespaces, function, arguments = _split(name)
    if not function:
        return None
    if function in LOOPS:
        head, access = LOOPS[function]
        operation, operands = _operation(arguments)
        return [head, operation], f"{operands} {access}".strip()
    innermost = namespaces.split("::")[-1]
    if function.lower() == "kernel":
        return [innermost, function], ""
    return [re.sub(r"_kernel(?:_cuda)?$|(?:CUDA)?Kernel$", "", function).strip("_") or function], innermost


def _split(name: str) -> tuple[str, str, str]:
    """The namespaces, the identifier (empty in what is none) and the rest of the name of a function, mangled or not."""
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
    is_function = re.fullmatch(r"[A-Za-z_]\w*", identifier)
    return namespaces.strip(":"), identifier if is_function else "", plain[len(qualified) :]


def _operation(arguments: str) -> tuple[str, str]:
    """The function that a loop applies, and which of its operands are numbers."""
    is_operation = re.compile(
        r"CUDAFunctor\w*_\w+|\w*Functor|\w+Ops|\w+_kernel(?:_cuda|_impl)*|\w+KernelImpl(?:Internal)?|\w+_cuda_out"
        r"|\w+_functor|launch_\w+|ReduceAdd|TensorAssign"
    ).fullmatch
    words = re.findall(r"[A-Za-z_]\w*", arguments[:2000])
    operation = next((word for word in words if word not in WRAPPERS and is_operation(word)), "")
    before = words[: words.index(operation) + 1] if operation else []
    operands = next((BINDINGS[word.split("_")[0]] for word in before if word.split("_")[0] in BINDINGS), "")
    # mul from MulFunctor, exp from exp_kernel_cuda, silu backward from silu_backward_kernel.
    word = re.sub(r"^CUDAFunctor(?:OnSelf|OnOther)?_", "", operation)
    end = r"_?(?:kernel(?:_cuda|_impl)?|cuda_kernel|(?:CUDA)?KernelImpl(?:Internal)?|cuda(?:_out)?|[fF]unctor|Ops)$"
    bare = re.sub(end, "", word)
    bare = RENAMED.get(bare or word, bare or word)
    if bare[:1].isupper():
        bare = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", bare).lower()
    return re.sub(r"_(backward)$", r" \1", bare), operands
