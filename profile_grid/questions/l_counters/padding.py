"""Matrix products with padding: FLOPs of complete tiles, which extend over the edges, against FLOPs of the shapes.

A kernel computes complete tiles: a result of 512 × 80 in tiles of 128 × 32 takes 512 × 96, 1.2 times the FLOPs; the
depth is padded too. A kernel's name has the size of the tile and its depth, but not which side is along the rows, nor
which product of a part it computed.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence

from kernel_tables.kernel_names.matrix import matrix_parts

MAX_PADDING = 0.05  # of the FLOPs of the shapes, for padding of unknown tiles
MAX_SUMS = 0.02  # of the FLOPs of the shapes, for sums of slices of the depth, which names do not have
ROUNDING = 1e-6  # of the FLOPs
Product = tuple[int, int, int]  # m, n, k
Tile = tuple[int, int, int]  # the same of a tile


def gradients(products: Iterable[Product]) -> list[Product]:
    """The products of the backward pass, two for each product: the gradients of its two operands."""
    return [gradient for m, n, k in products for gradient in ((m, k, n), (k, n, m))]


def padded_ratio(ratio: float, kernels: Mapping[str, float], products: Sequence[Product]) -> float:
    """FLOPs in tiles ÷ FLOPs of the shapes, for products with equal FLOPs; `kernels` are the products that each
    computed.

    Of all possible ratios, the largest that does not exceed the counted `ratio`, else the smallest. NaN if the names do
    not give a tile for every product. Kernels without a tile sum the results of others.
    """
    tiles = {name: tile for name in kernels if (tile := tile_of(name))}
    if sum(kernels[name] for name in tiles) != len(products) or any(kernels[name] % 1 for name in tiles):
        return math.nan
    sums = {0.0}
    for name, tile in tiles.items():
        rows, columns, depth = tile
        sides = (tile, (columns, rows, depth))
        possible = {padded(product, value) for product in products for value in sides}
        for _ in range(int(kernels[name])):
            sums = {round(before + value, 9) for before in sums for value in possible}
    ratios = [total / len(products) for total in sums]
    return max((value for value in ratios if value <= ratio + ROUNDING), default=min(ratios))


def within_padding(ratio: float, tiles: float, products: Sequence[Product]) -> bool:
    """Whether the counted FLOPs equal those in tiles, allowing for the scaling of each result (an addition and a
    multiplication) and the sums of slices; if tiles are NaN, whether they are within 5 %."""
    if math.isnan(tiles):
        return abs(ratio - 1) <= MAX_PADDING
    depth = min(k for _, _, k in products)
    return -ROUNDING <= ratio - tiles <= tiles / depth + MAX_SUMS


def padded(product: Product, tile: Tile) -> float:
    """FLOPs of a product in complete tiles ÷ its own."""
    return math.prod(math.ceil(size / step) * step / size for size, step in zip(product, tile, strict=True))


def tile_of(kernel: str) -> Tile | None:
    """(rows, columns, depth) of the tile in a kernel's name, depth 1 if not named; None without a tile."""
    written = {part.key: re.findall(r"\d+", part.written) for part in matrix_parts(kernel)}
    if "tile" not in written:
        return None
    rows, columns, *depth = written["tile"]
    stages = written.get("stages", [])  # 64x5: 64 deep, five in flight; for stage3 the depth is in the tile
    return int(rows), int(columns), int(depth[0] if depth else stages[0] if len(stages) == 2 else 1)
