"""Short, readable names of kernels, different for different kernels of a table; what `kernel-tables names` prints.

A full name has parts. Main parts make the short name, such as "sgemm 256×128 nn". Others, each with a key, are added
where short names would be equal.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count, zip_longest
from typing import ClassVar, NamedTuple

from kernel_tables.classes import FIELDS, UNKNOWN, rule_for
from kernel_tables.output import visible


class NameFact(NamedTuple):
    about: str  # short name, class or rule
    value: str
    reason: str


def name_facts(name: str, extra_rules: Sequence[Mapping[str, str]] = ()) -> list[NameFact]:
    """A kernel's short name, its class, and what the rule that decided the class searches."""
    rule = rule_for(name, extra_rules)
    kernel_class, reason = (rule.kernel_class, rule.reason) if rule else (UNKNOWN, "no rule fits; --class adds one")
    more = "more is added where another kernel of a table would have the same"
    facts = [NameFact("short name", FullName(name).short, more), NameFact("class", kernel_class, reason)]
    for field, pattern in rule.patterns.items() if rule else ():
        facts.append(NameFact("rule", " ".join(pattern.split()), f"searched in {FIELDS[field]}"))
    return facts


def short_names(names: Iterable[str]) -> dict[str, str]:
    """A short name by full name, all different. Equal ones are told apart by their ends, then by other parts, and what
    is still equal by numbers."""
    full = {name: FullName(name) for name in dict.fromkeys(names)}
    short = {name: one.short for name, one in full.items()}

    def with_same(text_of: Callable[[str], str], names: Iterable[str]) -> dict[str, list[str]]:
        """The names by the text that `text_of` returns for them, in order."""
        groups: dict[str, list[str]] = {}
        for name in names:
            groups.setdefault(text_of(name), []).append(name)
        return groups

    def add_parts(text: str, group: list[str]) -> None:
        """Adds to each of the names, which are all `text` so far, the first other part in which they differ; to those
        that are then still equal a further part, and so on."""
        first = ("library", "operands", "access", "type")
        keys = dict.fromkeys((*first, *(key for name in group for key in full[name].others)))
        for key in keys if len(group) > 1 else ():
            groups = with_same(lambda name, key=key: full[name].others.get(key, ""), group)
            if len(groups) > 1:
                for more, part in groups.items():
                    add_parts(f"{text} {visible(more)}".strip(), part)
                return
        short.update(dict.fromkeys(group, text))

    for text, group in with_same(short.get, short).items():
        texts = [full[name].text for name in group]
        if len(text) == FullName.MAX_CHARACTERS and len(set(texts)) > 1:  # cut: show where they begin to differ
            differ = next(index for index, letters in enumerate(zip_longest(*texts)) if len(set(letters)) > 1)
            short.update((name, full[name].with_end(differ)) for name in group)
    for text, group in with_same(short.get, list(short)).items():
        add_parts(text, group)
    groups, used = with_same(short.get, sorted(short)), set()
    for text, group in sorted(groups.items()):
        with_numbers = (f"{text} #{number}" for number in count(1))
        for name in group if len(group) > 1 else ():  # not the text of another group either
            short[name] = next(one for one in with_numbers if one not in used and one not in groups)
            used.add(short[name])
    return short


class FullName:
    """A full name: its main parts as `text`, and `others` by key, which tell names with equal main parts apart."""

    MAX_CHARACTERS = 40  # of a short name; parts that are added to tell equal ones apart do not count
    TYPES: ClassVar = {
        "float": "fp32", "double": "fp64", "c10::Half": "fp16", "__half": "fp16", "c10::BFloat16": "bf16",
        "__nv_bfloat16": "bf16", "__hip_bfloat16": "bf16", "cutlass::bfloat16_t": "bf16", "cutlass::half_t": "fp16",
        "c10::Float8_e4m3fn": "fp8", "c10::Float8_e5m2": "fp8", "c10::complex<float>": "complex64", "long": "int64",
        "int": "int32", "short": "int16", "bool": "bool", "unsigned char": "uint8", "signed char": "int8",
    }  # fmt: skip
    TYPE = re.compile(
        r"\bOpaqueType<(\d+)|(?<![\w:])(?:"
        + "|".join(map(re.escape, sorted(TYPES, key=len, reverse=True)))
        + r")(?!\w|::)"
    )
    LOOPS: ClassVar = {  # by kernel of PyTorch: what a short name calls it, and how it gets at its operands
        "vectorized_elementwise_kernel": ("elementwise", "vectorized"),  # they lie densely: several elements per load
        "vectorized_templated_elementwise_kernel": ("elementwise", "vectorized"),  # densely, of several types
        "unrolled_elementwise_kernel": ("elementwise", "unrolled"),  # densely, but of several types, or not aligned
        "elementwise_kernel": ("elementwise", "strided"),  # an offset is computed for every element
        "elementwise_kernel_manual_unroll": ("elementwise", "strided"),
        "elementwise_kernel_with_index": ("elementwise", "indexed"),  # the function gets the index of its element
        "index_elementwise_kernel": ("elementwise", "indexed"),
        "_scatter_gather_elementwise_kernel": ("scatter/gather", "scattered"),
        "distribution_elementwise_grid_stride_kernel": ("random", "random"),
        "reduce_kernel": ("reduce", ""),
        "multi_tensor_apply_kernel": ("foreach", ""),
    }
    BINDINGS: ClassVar = {  # by word: which operands are numbers, which tensors; "" if all are tensors
        "AUnaryFunctor": "scalar-tensor", "BUnaryFunctor": "tensor-scalar", "BinaryFunctor": "",
        "CUDAFunctorOnSelf": "tensor-scalar", "CUDAFunctorOnOther": "scalar-tensor",
    }  # fmt: skip
    WRAPPERS: ClassVar = {  # words around the function that says what is computed
        *BINDINGS, "func_wrapper_t", "gpu_kernel_impl", "gpu_kernel_impl_nocast", "opmath_gpu_kernel_with_scalars",
        "ReduceOp", "_cuda_scatter_gather_internal_kernel", "normal_and_transform", "CUDAGeneratorImpl",
        "uniform_and_transform", "gpu_index_kernel",
    }  # fmt: skip
    RENAMED: ClassVar = {  # operations that are called otherwise in PyTorch's interface
        "direct_copy": "copy", "bfloat16_copy": "copy", "float16_copy": "copy", "MaxNan": "max", "MinNan": "min",
        "launch_clamp_scalar": "clamp", "NormTwo": "norm2", "Welford": "var", "pow_tensor_scalar": "pow",
        "TensorAssign": "assign", "ReduceAdd": "add", "CompareEq": "eq", "CompareNE": "ne", "ArgMax": "argmax",
        "ArgMin": "argmin",
    }  # fmt: skip

    def __init__(self, name: str):
        """Of a name of more than 4,000 characters, these are read."""
        self.others: dict[str, str] = {}
        begin = name[:4000]
        main = self._words(begin) or self._matrix_product(begin) or self._function(begin) or [name]
        self.text = visible(" ".join(" ".join(main).split()))

    @property
    def short(self) -> str:
        """The short name if no other kernel would have the same."""
        return self._cut(self.text)

    def with_end(self, differ: int) -> str:
        """The beginning, and the end from the word at this index on."""
        word = self.text.rfind("_", 0, differ) + 1
        return self._cut(f"{self.text[:18]}…{self.text[word if differ - word < 18 else differ :]}")

    def _cut(self, text: str) -> str:
        return text if len(text) <= self.MAX_CHARACTERS else text[: self.MAX_CHARACTERS - 1] + "…"

    # What reads a kind of names: it returns the main parts, none for other names

    def _words(self, name: str) -> list[str]:
        """Of a memory operation or a replay ("[CUDA memcpy Host-to-Device]"), an operator ("aten::mm"), and a kernel of
        torch.compile ("triton_poi_fused_add_mul_3") or NCCL ("ncclDevKernel_AllReduce_Sum_f32_RING_LL")."""
        if match := re.fullmatch(r"\[CUDA (memcpy|memset|graph)(?: (.+))?\]", name):
            way = match[2] or ""
            if match[1] == "memcpy":
                way = way.replace("Host", "H").replace("Device", "D").replace("Peer", "P").replace("-to-", "to")
            return [match[1], way]
        if re.fullmatch(r"aten::\w+", name):
            return [name]
        if match := re.match(r"nccl(?:Dev)?Kernel_(\w+)", name):
            operation, *words = match[1].split("_")
            self.others = {f"word {number}": word for number, word in enumerate(words)}
            return ["nccl", operation]
        match = re.fullmatch(r"triton_(poi|red|per|tem|for)_fused_(.+?)(?:_(\d+))?", name)
        if match is None:
            return []
        self.others = {"loop": match[1]} | ({"number": f"({match[3]})"} if match[3] else {})
        operators = re.findall(  # those of ATen with underscores within; one that begins with another precedes it
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
        return ["fused", *shown] + [f"+{len(operators) - len(shown)}"] * (len(shown) < len(operators))

    def _matrix_product(self, name: str) -> list[str]:
        """Of a matrix multiply or convolution of NVIDIA's: by cuBLAS `ampere_sgemm_128x64_nn`, by CUTLASS
        `cutlass_80_simt_sgemm_256x128_8x4_nn_align1`, by XMMA `sm80_xmma_gemm_f32f32_..._tn_n_tilesize128x64x8_...`, by
        nvJet `nvjet_tst_192x192_64x4_2x1_v_bz_TNN`. CUTLASS documents its names, the others are similar."""
        core = re.search(  # from the word that names the origin on
            r"(?:cutlass_\w*?(?:gemm|fprop|dgrad|wgrad)|(?:maxwell|volta|turing|ampere|hopper)_\w*?gemm|sm\d+_xmma_"
            r"|nvjet_|cudnn_\w*?scudnn_)\w*",
            name,
        )
        core, sizes, others = core[0] if core else "", 0, {}
        main: dict[str, list[str]] = {"type": self._matrix_operation(core), "tile": [], "layout": [], "more": []}
        for token in re.findall(r"split_k|stages_\d+x\d+|[^_]+", core):
            if re.fullmatch(r"(?:stages_)?\d+x\d+", token) and (sizes := sizes + 1) in (2, 3):
                others[{2: "stages", 3: "cluster"}[sizes]] = token  # the first is the tile
            elif tile := re.fullmatch(r"(?:tilesize)?(\d+)x(\d+)(?:x\d+)?", token):
                main["tile"].append(f"{tile[1]}×{tile[2]}")
            elif core.startswith("cutlass_") and re.fullmatch(r"\d\d\d?", token):
                others["architecture"] = f"sm{token}"
            elif re.fullmatch(r"[ntNT]{2,3}", token):  # of each operand: as it is stored, or transposed
                main["layout"].append(token.lower())
            elif re.fullmatch(r"split_?[kK]", token):  # blocks share the depth; their sums are added afterwards
                main["more"].append("split-k")
            elif re.fullmatch(r"bias|relu|gelu", token):
                main["more"].append(token)
            elif word := re.fullmatch(
                r"(?P<architecture>maxwell|volta|turing|ampere|hopper|sm\d+)|(?P<stages>stage\d+)"
                r"|(?P<warps>warp(?:group)?size\w+)|(?P<cores>wmma)|(?P<instruction>tensor\d+x\d+x\d+)"
                r"|(?P<alignment>align[abc]?\d+)|(?P<slices>sliced\w+)|(?P<schedule>coop[AB]?|2cta)|(?P<loads>ldg\d+)"
                r"|(?P<variant>small|medium|large|interior|xregs)",
                token,
            ):
                others[word.lastgroup] = token
        if not main["tile"]:
            return []
        libraries = ("xmma",) if "xmma" in core else ("cudnn", "nvjet", "cutlass")
        library = next((word for word in libraries if word in core or word in name.lower()), "cublas")
        self.others = others | {"library": library}
        return [text for texts in main.values() for text in texts]

    def _matrix_operation(self, core: str) -> list[str]:
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

    def _function(self, name: str) -> list[str]:
        """Of a function of C++. Of PyTorch's loops, reductions and lists of tensors: what they apply to what. Of
        others: the name without `kernel`; its namespace, type and arguments tell it apart."""
        namespaces, function, arguments = self._split(name)
        template = self._template_arguments(arguments)
        if not function:
            return []
        if function in self.LOOPS:
            head, access = self.LOOPS[function]
            main, numbers = [head, *self._operation(arguments)], [text for text in template if text.isdigit()]
            self.others |= {"access": access} if access else {}
            if head == "foreach":
                lists = re.search(r"TensorList(?:ScalarList)?Metadata<\D*(\d+)", arguments)
                inner = re.search(r",\s*(std::\w+<\w+>|at::native::(?:Copy|\w+)<[\w:, ]+>)", arguments)
                self.others |= {"lists": f"{lists[1]} lists"} if lists else {}
                self.others |= {"function": inner[1].split("::")[-1].split("<")[0]} if inner else {}
                return main
            if numbers and function == "vectorized_elementwise_kernel":
                self.others["width"] = f"vec{numbers[0]}"
            elif numbers:
                self.others["numbers"] = "/".join(numbers)
            # As nvcc and clang number lambdas: {lambda() (instance 2)}, {lambda()#2}.
            instances = re.findall(r"(?:instance |#)(\d+)", " ".join(template))
            self.others |= {"lambda": "λ" + ".".join(instances)} if instances else {}
            return main
        innermost = namespaces.split("::")[-1]
        self.others |= {"namespace": innermost} if namespaces else {}
        self.others |= {"type": type_} if (type_ := self._type_in(arguments)) else {}
        for number, argument in enumerate(template, start=1):
            text = self.TYPES.get(argument) or f"<{argument.split('::')[-1]}>"
            self.others |= {f"argument {number}": text} if len(text) <= 14 else {}
        if function.lower() == "kernel":
            return [innermost, function]
        return [re.sub(r"_kernel(?:_cuda)?$|(?:CUDA)?Kernel$", "", function).strip("_") or function]

    # What reads functions of C++

    def _split(self, name: str) -> tuple[str, str, str]:
        """The namespaces, the identifier and the rest of the name of a function, mangled or not; the identifier is
        empty if the text is not the name of a function."""
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

    def _template_arguments(self, text: str) -> list[str]:
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

    def _type_in(self, text: str) -> str | None:
        """The first type of numbers in this text, as PyTorch, NVIDIA or AMD call it; None if there is none. One in
        parentheses before a number, `(int)128`, does not count."""
        match = self.TYPE.search(re.sub(r"\((?:unsigned )?\w+\)(?=\d)", "", text))
        return match and (f"{match[1]}-byte" if match[1] else self.TYPES[match[0]])

    def _operation(self, arguments: str) -> list[str]:
        """The function that is applied. How its operands are bound, and their type, tell it apart.

        The type is taken from the template of the binding, since the operation may compute in another type; else from
        that of the operation; else from the parameters of its lambda; else it is the first type of all.
        """
        is_operation = re.compile(
            r"CUDAFunctor\w*_\w+|\w*Functor|\w+Ops|\w+_kernel(?:_cuda|_impl)*|\w+_cuda_kernel|\w+CUDAKernelImpl"
            r"|\w+KernelImplInternal|\w+_cuda_out|\w+_functor|\w+KernelImpl|launch_\w+|ReduceAdd|ReduceMultiply"
            r"|TensorAssign"
        ).fullmatch
        words = re.findall(r"[A-Za-z_]\w*", arguments[:2000])
        operation = next((word for word in words if word not in self.WRAPPERS and is_operation(word)), "")
        before = words[: words.index(operation) + 1] if operation else []
        binding = next((word for word in before if word.split("_")[0] in self.BINDINGS), None)
        after = [arguments.partition(word)[2] for word in (binding, operation) if word]
        texts = [template[0] for text in after if (template := re.match(r"<[^<>]*", text))]
        if operation:
            texts += re.findall(r"lambda\(([^()]+)\)", after[-1])[:1]
        self.others |= {"operands": self.BINDINGS[binding.split("_")[0]]} if binding else {}
        type_ = next(filter(None, map(self._type_in, [*texts, arguments])), None)
        self.others |= {"type": type_} if type_ else {}
        self.others |= {"cast": "cast"} if operation and "LoadWithCast" in arguments else {}
        # mul from MulFunctor, exp from exp_kernel_cuda, silu backward from silu_backward_kernel.
        word = re.sub(r"^CUDAFunctor(?:OnSelf|OnOther)?_", "", operation)
        bare = re.sub(
            r"_?(?:kernel_cuda|cuda_kernel|kernel_impl|CUDAKernelImpl|KernelImplInternal|KernelImpl|kernel|cuda_out"
            r"|cuda|functor|Functor|Ops)$",
            "",
            word,
        )
        bare = self.RENAMED.get(bare or word, bare or word)
        if bare[:1].isupper():
            bare = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", bare).lower()
        return [re.sub(r"_(backward)$", r" \1", bare)] if operation else []
