"""Names of NVIDIA's matrix multiplies and convolutions: words joined by `_`.

Examples: of cuBLAS `ampere_sgemm_128x64_nn`; of CUTLASS `cutlass_80_simt_sgemm_256x128_8x4_nn_align1`; of XMMA
`sm80_xmma_gemm_f32f32_..._tn_n_tilesize128x64x8_...`; of nvJet `nvjet_tst_192x192_64x4_2x1_v_bz_TNN`. CUTLASS
documents its names. The others are similar.
"""

import re
from collections.abc import Iterator

from kernel_tables.kernel_names.parts import NamePart

LIBRARIES = ("cudnn", "xmma", "nvjet", "cutlass")  # the first that a name contains; else it is of cuBLAS
PRECISION_LETTERS = {  # before gemm, as in BLAS
    "s": "fp32", "d": "fp64", "h": "fp16", "c": "complex64", "z": "complex128", "i": "int8", "gc": "complex64",
}  # fmt: skip
OPERANDS = {"f16": "fp16", "fp16": "fp16", "bf16": "bf16", "f32": "fp32", "tf32": "tf32", "f64": "fp64", "i8": "int8"}
NVJET_TYPES = {"t": "bf16", "h": "fp16", "s": "fp32", "d": "fp64", "q": "fp8", "o": "fp8"}  # not documented
# From the word that names the origin on, without what precedes it (return types, namespaces).
_CORE = re.compile(
    r"(?:cutlass_\w*?(?:gemm|fprop|dgrad|wgrad)|(?:maxwell|volta|turing|ampere|hopper)_\w*?gemm|sm\d+_xmma_|nvjet_"
    r"|cudnn_\w*?scudnn_)\w*"
)
# Of gemm: the type in front, the letter of the precision, the instruction, the type within, the type behind.
_KIND = re.compile(
    r"(?:(f16|fp16|bf16|tf32|i8)_)?(gc|[sdhczi])(\d{4,6})?(f16|bf16|tf32)?gemm(?:_relu)?(?:_(f16|fp16|bf16|tf32))?"
)
WORDS = (  # what an entire word of a name says, by pattern, in every short name or where short names would be equal
    ("architecture", r"maxwell|volta|turing|ampere|hopper|sm\d+", False),
    ("stages", r"stage\d+", False),  # of reading in flight
    ("warps", r"warpsize\w+|warpgroupsize\w+", False),
    ("cores", r"wmma", False),
    ("instruction", r"tensor\d+x\d+x\d+", False),
    ("alignment", r"align[abc]?\d+", False),
    ("slices", r"sliced\w+", False),  # warps of a block share the depth of one tile
    ("split", r"split_?[kK]", True),  # blocks share the depth; their sums are added afterwards
    ("epilogue", r"bias|relu|gelu", True),
    ("schedule", r"coop[AB]?|2cta", False),
    ("loads", r"ldg\d+", False),
    ("variant", r"small|medium|large|interior|xregs", False),
)
_WORDS = tuple((key, re.compile(pattern), is_main) for key, pattern, is_main in WORDS)
_TOKEN = re.compile(r"split_k|stages_\d+x\d+|[^_]+")
_SIZES = re.compile(r"(?:stages_)?(\d+)x(\d+)")
_TILE = re.compile(r"(?:tilesize)?(\d+)x(\d+)(?:x(\d+))?")


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
    in_core = "xmma" if "xmma" in core else None
    library = in_core or next((word for word in LIBRARIES if word in core or word in name.lower()), "cublas")
    return (*first, *others, NamePart("library", library))


def tile_of(name: str) -> tuple[int, int, int] | None:
    """(rows, columns, depth) of the part of the result that a block of threads computes, by the kernel's name, with
    depth 1 if the name has none; None for other names, or without a tile."""
    match = _CORE.search(name)
    tile, sizes = None, []
    for token in _TOKEN.findall(match[0]) if match else ():
        if size := _SIZES.fullmatch(token):
            sizes.append((int(size[1]), int(size[2])))
        elif size := _TILE.fullmatch(token):
            tile = (int(size[1]), int(size[2]), int(size[3] or 1))
    if tile or not sizes:
        return tile
    depth, _ = sizes[1] if len(sizes) > 1 else (1, 0)  # 64x5: a depth of 64, and five tiles in flight
    return (*sizes[0], depth)


def _kind(core: str) -> Iterator[NamePart]:
    """The operation with the type of its operands."""
    if xmma := re.match(
        r"sm\d+_xmma_(?:(fprop|dgrad|wgrad)_\w*?)?(?:implicit_)?gemm_(?:indexed_)?([a-z]+\d+?)(?=f|i|b|t|_)", core
    ):
        operands = "tf32" if "_tf32f32" in core else xmma[2]  # f32f32_tf32f32: fp32 in memory, rounded when multiplied
        yield _type_part(operands, xmma[1])
    elif nvjet := re.match(r"nvjet_(?:sm\d+_)?([a-z]+)_", core):
        yield NamePart("type", f"{NVJET_TYPES.get(nvjet[1][0], nvjet[1])} gemm", is_main=True)
    elif conv := re.search(r"_(s\d{4,5})(fprop|dgrad|wgrad)_\w*?_(tf32|f16|bf16)_", core):
        yield _type_part(conv[3], conv[2])
    elif "scudnn" in core:  # a convolution in fp32 on the ordinary cores
        yield NamePart("type", "scudnn", is_main=True)
    elif kind := _KIND.search(core):
        type_before, letter, instruction, type_inside, type_after = kind.groups()
        if instruction is None:
            yield NamePart("type", f"{letter}gemm", is_main=True)
        else:
            operands = "tf32" if letter == "s" else PRECISION_LETTERS[letter]
            operands = OPERANDS.get(type_before or type_inside or type_after or "", operands)
            yield NamePart("type", f"{operands} gemm", is_main=True)


def _type_part(written_type: str, convolution: str | None) -> NamePart:
    """The part for operands of this type; `convolution` is fprop, dgrad or wgrad, None for a matrix multiply."""
    operands = OPERANDS.get(written_type, written_type)
    gemm = {"fp32": "sgemm", "fp64": "dgemm"}.get(operands, f"{operands} gemm")
    return NamePart("type", f"{operands} {convolution}" if convolution else gemm, is_main=True)


def _words(core: str) -> Iterator[NamePart]:
    """The words of the name whose meaning is known, in order. Of several sizes (128x64), the first is the tile, the
    second the stages (the depth of one and their number), the third the cluster of blocks."""
    sizes = 0
    for token in _TOKEN.findall(core):
        if _SIZES.fullmatch(token):
            sizes += 1
            if sizes in (2, 3):
                yield NamePart({2: "stages", 3: "cluster"}[sizes], token)
                continue
        if tile := _TILE.fullmatch(token):
            yield NamePart("tile", f"{tile[1]}×{tile[2]}", is_main=True)
        elif core.startswith("cutlass_") and re.fullmatch(r"\d\d\d?", token):
            yield NamePart("architecture", f"sm{token}")
        elif re.fullmatch(r"[ntNT]{2,3}", token):  # of each operand: as it is stored, or transposed
            yield NamePart("layout", token.lower(), is_main=True)
        else:
            for key, pattern, is_main in _WORDS:
                if pattern.fullmatch(token):
                    yield NamePart(key, "split-k" if key == "split" else token, is_main)
                    break
