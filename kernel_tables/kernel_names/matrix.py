"""Names of NVIDIA's matrix multiplies and convolutions: words joined by `_`, each with its meaning.

Examples: of cuBLAS `ampere_sgemm_128x64_nn`; of CUTLASS `cutlass_80_simt_sgemm_256x128_8x4_nn_align1`; of XMMA
`sm80_xmma_gemm_f32f32_..._tn_n_tilesize128x64x8_...`; of nvJet `nvjet_tst_192x192_64x4_2x1_v_bz_TNN`. CUTLASS
documents its names. The others are similar; a meaning that nobody documents ends with NOT_DOCUMENTED.
"""

import re
from collections.abc import Callable, Iterator

from kernel_tables.kernel_names.parts import NamePart, main_part

LIBRARIES = {  # the short text and the meaning
    "cutlass": ("cutlass", "from CUTLASS, NVIDIA's templates"),
    "xmma": ("xmma", "from XMMA, a generator of kernels inside cuBLAS and cuDNN"),
    "nvjet": ("nvjet", "from nvJet, kernels for Hopper and Blackwell inside cuBLAS (its names are not documented)"),
    "cublas": ("cublas", "from cuBLAS, written by hand for one architecture"),
    "cudnn": ("cudnn", "from cuDNN"),
}
ARCHITECTURES = {"maxwell": "Maxwell", "volta": "Volta", "turing": "Turing", "ampere": "Ampere", "hopper": "Hopper"}
PRECISION_LETTERS = {  # before gemm, as in BLAS: the precision and the type
    "s": ("single", "fp32"), "d": ("double", "fp64"), "h": ("half", "fp16"), "c": ("complex", "complex64"),
    "z": ("double complex", "complex128"), "i": ("integer", "int8"), "gc": ("complex", "complex64"),
}  # fmt: skip
OPERANDS = {"f16": "fp16", "fp16": "fp16", "bf16": "bf16", "f32": "fp32", "tf32": "tf32", "f64": "fp64", "i8": "int8"}
NVJET_TYPES = {"t": "bf16", "h": "fp16", "s": "fp32", "d": "fp64", "q": "fp8", "o": "fp8"}
NOT_DOCUMENTED = "; not documented by NVIDIA"
WORK = {"fprop": "convolution, forward", "dgrad": "convolution, gradient of its input",
        "wgrad": "convolution, gradient of its weights"}  # fmt: skip
# From the word that names the origin on, without what precedes it (return types, namespaces).
_CORE = re.compile(
    r"(?:cutlass_\w*?(?:gemm|fprop|dgrad|wgrad)|(?:maxwell|volta|turing|ampere|hopper)_\w*?gemm|sm\d+_xmma_|nvjet_"
    r"|cudnn_\w*?scudnn_)\w*"
)
# Of gemm: the type in front, the letter of the precision, the instruction, the type within, the type behind.
_KIND = re.compile(
    r"(?:(f16|fp16|bf16|tf32|i8)_)?(gc|[sdhczi])(\d{4,6})?(f16|bf16|tf32)?gemm(?:_relu)?(?:_(f16|fp16|bf16|tf32))?"
)


def matrix_parts(name: str) -> tuple[NamePart, ...]:
    """The parts of the name of a matrix multiply or convolution by NVIDIA; none for other names, or without a tile."""
    match = _CORE.search(name)
    if match is None:
        return ()
    core = match[0]
    parts = [*_kind(core), *_words(core)]
    if not any(part.key == "tile" for part in parts):
        return ()
    first = [part for key in ("type", "tile", "layout") for part in parts if part.key == key]
    others = [part for part in parts if part not in first]
    return (*first, *others, *_library(core, name))


def _kind(core: str) -> Iterator[NamePart]:
    """The operation with the type of its operands, and the instruction of tensor cores if it is named with them."""
    if xmma := re.match(
        r"sm\d+_xmma_(?:(fprop|dgrad|wgrad)_\w*?)?(?:implicit_)?gemm_(?:indexed_)?([a-z]+\d+?)(?=f|i|b|t|_)", core
    ):
        operands = "tf32" if "_tf32f32" in core else xmma[2]  # f32f32_tf32f32: fp32 in memory, rounded when multiplied
        yield _type_part(operands, operands, xmma[1])
    elif nvjet := re.match(r"nvjet_(?:sm\d+_)?([a-z]+)_", core):
        operands = NVJET_TYPES.get(nvjet[1][0], nvjet[1])
        meaning = f"letters of types, {operands} operands by the first{NOT_DOCUMENTED}"
        yield main_part("type", nvjet[1], meaning, f"{operands} gemm")
    elif conv := re.search(r"_(s\d{4,5})(fprop|dgrad|wgrad)_\w*?_(tf32|f16|bf16)_", core):
        yield _type_part(conv[3], f"{conv[1]}{conv[2]}_…_{conv[3]}", conv[2])
    elif "scudnn" in core:
        yield main_part("type", "scudnn", "convolution in fp32 on the ordinary cores", "scudnn")
    elif kind := _KIND.search(core):
        yield from _gemm_kind(kind)


def _type_part(written_type: str, written: str, work: str | None) -> NamePart:
    """The part for operands of this type; `work` is one of WORK, None for a matrix multiply."""
    operands = OPERANDS.get(written_type, written_type)
    operation = WORK.get(work, "matrix multiply")
    short = f"{operands} {work or 'gemm'}"
    if work is None:
        short = {"fp32": "sgemm", "fp64": "dgemm"}.get(operands, short)
    return main_part("type", written, f"{operation} of {operands} operands", short)


def _gemm_kind(kind: re.Match) -> Iterator[NamePart]:
    type_before, letter, instruction, type_inside, type_after = kind.groups()
    precision, letter_type = PRECISION_LETTERS[letter]
    if instruction is None:
        yield main_part(
            "type", f"{letter}gemm", f"matrix multiply in {precision} precision ({letter_type})", f"{letter}gemm"
        )
    else:
        written_type = type_before or type_inside or type_after or ""
        operands = OPERANDS.get(written_type, "tf32" if letter == "s" else letter_type)
        meaning = f"matrix multiply of {operands} operands, summed in {precision} precision"
        yield main_part("type", kind[0], meaning, f"{operands} gemm")
        shape = "×".join(re.findall(r"16|8|4|32|64", instruction))  # 16×8×8 for 1688, 16×8×16 for 16816
        yield NamePart("instruction", instruction, f"on tensor cores, by the instruction {shape} (m×n×k)")


def _library(core: str, name: str) -> Iterator[NamePart]:
    words = ("cudnn", "xmma", "nvjet", "cutlass")
    library = next((word for word in words if word in core or word in name.lower()), "cublas")
    short, meaning = LIBRARIES["xmma" if "xmma" in core else library]
    written = short if short in core else core.partition("_")[0]
    yield NamePart("library", written, meaning, short)


def _tile(match: re.Match) -> NamePart:
    rows, columns, depth = match[1], match[2], match[3]
    meaning = f"each block of threads computes a tile of {rows} × {columns} of the result"
    meaning += f", {depth} deep at a time" if depth else ""
    return main_part("tile", match[0], meaning, f"{rows}×{columns}")


def _layout(match: re.Match) -> NamePart:
    words = {"n": "as it is stored", "t": "transposed"}
    first, second = (words[letter] for letter in match[0].lower()[:2])
    meaning = f"first operand {first}, second {second} (column by column, as BLAS stores)"
    return main_part("layout", match[0], meaning, match[0].lower())


def _architecture(match: re.Match) -> NamePart:
    number = match[1]
    if number in ARCHITECTURES:
        return NamePart("architecture", number, f"written for {ARCHITECTURES[number]}; later GPUs run it too", number)
    digits = re.sub(r"\D", "", number)
    meaning = f"for compute capability {digits[:-1]}.{digits[-1]} and later"
    return NamePart("architecture", match[0], meaning, f"sm{digits}")


def _alignment(match: re.Match) -> NamePart:
    operand, elements = match.groups()
    in_words = {"a": "the first operand", "b": "the second operand", "c": "the result"}.get(operand, "every operand")
    return NamePart("alignment", match[0], f"{in_words} is aligned to {elements} element(s)", match[0])


def _word(key: str, meaning: str, short: str | None = None, *, is_main: bool = False) -> Callable[[re.Match], NamePart]:
    """A function from a match to its part. In short names, the part is `short`, by default the match itself. "{0}" in
    the meaning is the match, "{1}" its first group."""

    def part_of(match: re.Match) -> NamePart:
        text = match[0] if short is None else short
        return NamePart(key, match[0], meaning.format(match[0], *match.groups()), text, is_main)

    return part_of


WORDS: tuple[tuple[str, Callable[[re.Match], NamePart]], ...] = (  # the first that fits an entire word decides
    (r"(maxwell|volta|turing|ampere|hopper)", _architecture),
    (r"sm(\d+)", _architecture),
    (r"(?:tilesize)?(\d+)x(\d+)(?:x(\d+))?", _tile),
    (r"stage(\d+)", _word("stages", "{1} stages of reading in flight")),
    (r"warpsize(\w+)", _word("warps", "warps of a block, along m, n and k")),
    (r"warpgroupsize(\w+)", _word("warps", "groups of four warps of a block, along m, n and k")),
    (r"[ntNT]{2,3}", _layout),
    (r"simt|ffma", _word("cores", "on the ordinary cores, not on tensor cores", short="")),
    (r"tensorop", _word("cores", "on tensor cores", short="")),
    (r"wmma", _word("cores", "through the wmma interface of tensor cores", short="wmma")),
    (r"tensor(\d+x\d+x\d+)", _word("instruction", "on tensor cores, by the instruction {1} (m×n×k)")),
    (r"align([abc]?)(\d+)", _alignment),
    (r"sliced(\w+)", _word("slices", "warps of a block share the depth of one tile, {1}")),
    (r"split_?[kK]",
     _word("split", "blocks share the depth; their sums are added afterwards", "split-k", is_main=True)),
    (r"bias", _word("epilogue", "adds a bias before it stores", is_main=True)),
    (r"relu|gelu", _word("epilogue", "applies {0} before it stores", is_main=True)),
    (r"coop[AB]?", _word("schedule", "groups of warps work on one tile together" + NOT_DOCUMENTED)),
    (r"2cta", _word("schedule", "two blocks share one tensor core operation")),
    (r"ldg(\d+)", _word("loads", "loads {1} elements at a time")),
    (r"cublas", _word("origin", "built for cuBLAS", short="")),
    (r"small|medium|large|interior|xregs", _word("variant", "a variant by size of the problem or of its registers")),
)  # fmt: skip
_WORDS = tuple((re.compile(pattern), part_of) for pattern, part_of in WORDS)
_TOKEN = re.compile(r"split_k|stages_\d+x\d+|[^_]+")


def _words(core: str) -> Iterator[NamePart]:
    """The words of the name whose meaning is known, in order. Of several sizes (128x64), the first is the tile, the
    second the stages, the third the cluster."""
    sizes = 0
    for token in _TOKEN.findall(core):
        if match := re.fullmatch(r"(?:stages_)?(\d+)x(\d+)", token):
            sizes += 1
            if sizes == 2:
                meaning = f"reads {match[1]} deep at a time, {match[2]} such stages in flight"
                yield NamePart("stages", token, meaning, token)
            elif sizes == 3:
                yield NamePart("cluster", token, f"blocks in clusters of {match[1]} × {match[2]}", token)
            else:
                yield _tile(re.match(r"(\d+)x(\d+)()", token))  # with an empty depth
        elif core.startswith("cutlass_") and re.fullmatch(r"\d\d\d?", token):
            yield _architecture(re.match(r"(\d+)", token))
        else:
            for pattern, part_of in _WORDS:
                if match := pattern.fullmatch(token):
                    yield part_of(match)
                    break
