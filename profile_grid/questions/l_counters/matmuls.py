"""FLOPs of the matrix multiplies of a part: counted, from the shapes, and with padding.

A kernel computes complete tiles: a result of 512 × 80 in tiles of 128 × 32 takes 512 × 96, 1.2 times the FLOPs; the
depth is padded too. A kernel's name has the size of the tile and its depth, but not which side is along the rows, nor
which product of a part it computed.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from cs336_model import ranges
from cs336_model.arithmetic.checkpoints import recomputed_flops
from cs336_model.arithmetic.flops import ModelShape, matmul_flops, matmul_shapes
from cs336_model.program.variants.values import NOT_COMPILED
from kernel_tables.kernel_names.matrix import matrix_parts
from profile_grid.questions.l_counters.sums import SUMS, per_pass_with_rates, with_parts
from profile_grid.study.dimensions import COMPILE, LEADING
from profile_grid.tables import classes, ideal, names, per_pass

MAX_PADDING = 0.05  # of the FLOPs of the shapes, for padding of unknown tiles
MAX_SPLIT_K_SHARE = 0.02  # of the FLOPs of the shapes, for adding up slices of the depth (split-K): no name shows those
ROUNDING = 1e-6  # of the FLOPs
Product = tuple[int, int, int]  # m, n, k
Tile = tuple[int, int, int]  # the same of a tile


def gradients(products: Iterable[Product]) -> list[Product]:
    """The products of the backward pass, two for each product: the gradients of its two operands."""
    return [gradient for m, n, k in products for gradient in ((m, k, n), (k, n, m))]


def padded_ratio(ratio: float, kernels: Mapping[str, float], products: Sequence[Product]) -> float:
    """FLOPs in tiles ÷ FLOPs of the shapes, for products with equal FLOPs. `kernels` has the number of products that
    each kernel computed. Which kernel computed which product, and which way the tile lay, is unknown.

    Each product that a kernel computed may be any of the products, so assignments that use one twice are tried, too: of
    their ratios, the largest that does not exceed the counted `ratio`, else the smallest. NaN if
    the kernels with a tile in their names do not compute every product, or not a whole number each. Kernels without a
    tile sum the results of others.
    """
    tiles = {name: tile for name in kernels if (tile := tile_of(name))}
    if sum(kernels[name] for name in tiles) != len(products) or any(kernels[name] % 1 for name in tiles):
        return math.nan
    totals = {0.0}
    for name, tile in tiles.items():
        rows, columns, depth = tile
        possible = {padded(product, sides) for product in products for sides in (tile, (columns, rows, depth))}
        for _ in range(int(kernels[name])):
            totals = {round(before + value, 9) for before in totals for value in possible}
    ratios = [total / len(products) for total in totals]
    return max((value for value in ratios if value <= ratio + ROUNDING), default=min(ratios))


def within_padding(ratio: float, tile_ratio: float, products: Sequence[Product]) -> bool:
    """Whether the counted FLOPs equal those in tiles, allowing for the scaling of each result (an addition and a
    multiplication) and the sums of slices; if that ratio is NaN, whether the counted ones are within
    MAX_PADDING of those of the shapes."""
    if math.isnan(tile_ratio):
        return abs(ratio - 1) <= MAX_PADDING
    depth = min(k for _, _, k in products)
    return -ROUNDING <= ratio - tile_ratio <= tile_ratio / depth + MAX_SPLIT_K_SHARE


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


KEY_COLUMNS = ["run", "pass", "part"]
COLUMNS = [
    "pass", "part", "counted_flops", "shape_flops", "ratio", "padded_ratio", "within_padding", "counted_share",
]  # fmt: skip
DTYPES = {"ratio": "float64", "padded_ratio": "float64", "within_padding": "boolean"}


def counter_matmuls(merged: per_pass.Merged) -> pd.DataFrame:
    """(l) One row per run, pass and part with a matrix multiply: FLOPs of a single pass by counters and by the shapes.

    Only of runs of this project's model that are not compiled: there a part's products are its own. The two are not
    compared if some launches were not counted.
    """
    rows = with_parts(merged["counter_ranges"])
    counted = rows[classes.is_matmul(rows["class"])].groupby(KEY_COLUMNS, sort=False)[[*SUMS]].sum().reset_index()
    table = per_pass_with_rates(counted, merged)
    shapes, kernels = _shapes(merged), _launches_of_kernels(merged)
    flops = _flops_of_shapes(shapes)
    keys = table[KEY_COLUMNS].itertuples(index=False, name=None)
    table = table.assign(counted_flops=table["flops"], shape_flops=[flops.get(key, math.nan) for key in keys])
    table = table[table["shape_flops"] > 0].reset_index(drop=True)
    compared = [_compared(row, shapes[row["run"]][0], kernels) for row in table.to_dict("records")]
    table = table.join(pd.DataFrame(compared, index=table.index, columns=[*DTYPES]).astype(DTYPES))
    runs = merged["counter_ranges"]
    return per_pass.in_order_of(per_pass.with_leading_columns(table, runs), runs["run"])[[*LEADING, *COLUMNS]]


def _compared(row: dict, shape: ModelShape, kernels: dict[tuple, dict[str, float]]) -> tuple:
    """(counted ÷ from the shapes, in tiles ÷ from the shapes, whether these agree); NaN if a launch is not counted."""
    if row["counted_share"] < 1:
        return math.nan, math.nan, None
    ratio, pass_name, part = row["counted_flops"] / row["shape_flops"], row["pass"], row["part"]
    products, flops = [*matmul_shapes(shape)[part]], matmul_flops(shape)[part]
    if pass_name == names.BACKWARD:
        products, flops = gradients(products), 2 * flops
    layers = 1 if part == ranges.HEAD else shape.num_layers
    computed_per_pass = (
        layers * row["shape_flops"] / flops
    )  # once per layer, less often if recomputation leaves some out
    launches = kernels.get((row["run"], pass_name, part), {})
    tile_ratio = padded_ratio(
        ratio, {kernel: count / computed_per_pass for kernel, count in launches.items()}, products
    )
    return ratio, tile_ratio, within_padding(ratio, tile_ratio, products)


def _launches_of_kernels(merged: per_pass.Merged) -> dict[tuple, dict[str, float]]:
    """Launches per pass of every kernel that multiplies matrices, by run with counters, pass and part."""
    rows = merged.kernels[merged.kernels["run"].isin(merged["counter_ranges"]["run"])]
    rows = with_parts(rows[classes.is_matmul(rows["class"])])
    steps = rows["run"].map(merged.captured_steps).astype("float64")
    rows = rows.assign(launches=rows["launches"] / steps)
    launches = rows.groupby([*KEY_COLUMNS, "kernel"], sort=False)["launches"].sum()
    launches_by_kernel: dict[tuple, dict[str, float]] = {}
    for (*key, kernel), count in launches.items():
        launches_by_kernel.setdefault(tuple(key), {})[kernel] = round(count, 6)
    return launches_by_kernel


def _shapes(merged: per_pass.Merged) -> dict[str, tuple[ModelShape, str]]:
    """(shape, value of `checkpoint`) by run of this project's model that is not compiled."""
    runs = merged["runs"]
    not_compiled = runs[runs[COMPILE.key] == NOT_COMPILED].to_dict("records")
    return {
        run["run"]: (shape, run["checkpoint"]) for run in not_compiled if (shape := ideal.shape_of_run(run)) is not None
    }


def _flops_of_shapes(shapes: Mapping[str, tuple[ModelShape, str]]) -> dict[tuple, float]:
    """The FLOPs of the matrix products in one pass, by run, pass and part."""
    flops_by_key = {}
    for run, (shape, checkpoint) in shapes.items():
        recomputed = recomputed_flops(shape, checkpoint)
        for part, flops in matmul_flops(shape).items():
            flops_by_key[run, names.FORWARD, part] = flops
            flops_by_key[run, names.BACKWARD, part] = 2 * flops
            flops_by_key[run, names.RECOMPUTATION, part] = recomputed[part]
    return flops_by_key
