"""FLOPs of the matrix multiplies of a part: counted, from the shapes, and with padding.

A kernel computes complete tiles: a result of 512 × 80 in tiles of 128 × 32 takes 512 × 96, 1.2 times the FLOPs. The
depth, which is summed over, is padded too. A kernel's name has the size of its tile and the depth, but not which side
is along the rows, nor which product of a part it computed.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from cs336_model import ranges
from cs336_model.arithmetic.checkpoints import recomputed_flops
from cs336_model.arithmetic.flops import ModelShape, matmul_flops, matmul_shapes
from cs336_model.program.variants.values import NOT_COMPILED
from kernel_tables.kernel_names.matrix import tile_of
from profile_grid.questions.l_counters.sums import SUMMED_COLUMNS, per_pass_with_rates, with_parts
from profile_grid.study.dimensions import CHECKPOINT, COMPILE, LEADING
from profile_grid.tables import classes, ideal, names, per_pass

# Shares of the FLOPs of the shapes by which counted ones may differ:
MAX_PADDING = 0.05  # for padding if the tiles are unknown
MAX_SPLIT_K_SHARE = 0.02  # for adding up slices of the depth (split-K), which no name shows
ROUNDING = 1e-6
Product = tuple[int, int, int]  # m, n, k: rows and columns of the result, depth


def gradients(products: Iterable[Product]) -> list[Product]:
    """The products of the backward pass: for each product, those that give the gradients of its two operands."""
    return [gradient for m, n, k in products for gradient in ((m, k, n), (k, n, m))]


def padded_ratio(counted_ratio: float, product_counts: Mapping[str, float], products: Sequence[Product]) -> float:
    """FLOPs in tiles ÷ FLOPs of the shapes, for products with equal FLOPs. `product_counts`: how many of the products
    each kernel computed. Which kernel computed which product, and which way its tile lay, is unknown.

    So every assignment of products to kernels is tried, even if it uses a product twice. Of the resulting ratios, the
    largest that does not exceed `counted_ratio` is returned, or the smallest if all exceed it. NaN if the kernels with
    a tile in their names do not compute as many products as there are, or one of them no whole number. Kernels without
    a tile only sum the results of others.
    """
    tiles = {name: tile for name in product_counts if (tile := tile_of(name))}
    counts = [product_counts[name] for name in tiles]
    if sum(counts) != len(products) or any(count % 1 for count in counts):
        return math.nan
    sums = {0.0}  # for each assignment of the products so far, the sum of their ratios; equal sums only once
    for (rows, columns, depth), count in zip(tiles.values(), counts, strict=True):
        orientations = ((rows, columns, depth), (columns, rows, depth))
        ratios = {_ratio_in_tiles(product, tile) for product in products for tile in orientations}
        for _ in range(int(count)):
            sums = {round(previous + ratio, 9) for previous in sums for ratio in ratios}
    means = [ratio_sum / len(products) for ratio_sum in sums]
    return max((mean for mean in means if mean <= counted_ratio + ROUNDING), default=min(means))


def _ratio_in_tiles(product: Product, tile: tuple[int, int, int]) -> float:
    """FLOPs of a product in complete tiles ÷ its own."""
    return math.prod(math.ceil(size / step) * step / size for size, step in zip(product, tile, strict=True))


def is_within_padding(counted_ratio: float, tile_ratio: float, products: Sequence[Product]) -> bool:
    """Whether the counted FLOPs equal those in tiles, except for the scaling of each result (an addition and a
    multiplication) and the sums of slices. If the FLOPs in tiles are unknown (NaN): whether the counted FLOPs are
    within MAX_PADDING of those of the shapes. Both ratios are to the FLOPs of the shapes."""
    if math.isnan(tile_ratio):
        return abs(counted_ratio - 1) <= MAX_PADDING
    scaling = tile_ratio / min(k for _, _, k in products)  # 2 of the 2 k FLOPs of a result
    return -ROUNDING <= counted_ratio - tile_ratio <= scaling + MAX_SPLIT_K_SHARE


KEY_COLUMNS = ["run", "pass", "part"]
Key = tuple[str, str, str]  # their values
COMPARISON_DTYPES = {"ratio": "float64", "padded_ratio": "float64", "within_padding": "boolean"}
TABLE_COLUMNS = [*LEADING, "pass", "part", "counted_flops", "shape_flops", *COMPARISON_DTYPES, "counted_share"]


def counter_matmuls(merged: per_pass.Merged) -> pd.DataFrame:
    """(l) One row per run, pass and part with a matrix multiply: FLOPs of a single pass by counters and by the shapes.

    Only of runs of this project's model, since other shapes are unknown, and only if they are not compiled, since a
    compiled kernel may compute several parts. Rows with launches that were not counted are not compared.
    """
    counter_ranges, runs = merged["counter_ranges"], merged["runs"]
    rows = with_parts(counter_ranges)
    sums = rows[classes.is_matmul(rows["class"])].groupby(KEY_COLUMNS, sort=False)[SUMMED_COLUMNS].sum().reset_index()
    table = per_pass_with_rates(sums, merged)
    uncompiled_runs = [run for run in runs.to_dict("records") if run[COMPILE.key] == NOT_COMPILED]
    shapes = {run["run"]: shape for run in uncompiled_runs if (shape := ideal.shape_of_run(run)) is not None}
    flops = _flops_of_shapes(shapes, runs.set_index("run")[CHECKPOINT.key])
    keys = table[KEY_COLUMNS].itertuples(index=False, name=None)
    table = table.assign(counted_flops=table["flops"], shape_flops=[flops.get(key, math.nan) for key in keys])
    table = table[table["shape_flops"] > 0].reset_index(drop=True)
    launches = _launches_per_pass(merged)
    comparisons = [_comparison(row, shapes[row["run"]], launches) for row in table.to_dict("records")]
    columns = pd.DataFrame(comparisons, index=table.index, columns=[*COMPARISON_DTYPES]).astype(COMPARISON_DTYPES)
    table = per_pass.with_leading_columns(table.join(columns), counter_ranges)
    return per_pass.in_order_of(table, counter_ranges["run"])[TABLE_COLUMNS]


def _comparison(row: dict, shape: ModelShape, launches: Mapping[Key, Mapping[str, float]]) -> tuple:
    """The values of the columns COMPARISON_DTYPES in a row; NaN, NaN, None if a launch was not counted."""
    if row["counted_share"] < 1:
        return math.nan, math.nan, None
    pass_name, part = row["pass"], row["part"]
    products, flops = [*matmul_shapes(shape)[part]], matmul_flops(shape)[part]  # products of one layer, FLOPs of all
    if pass_name == names.BACKWARD:
        products, flops = gradients(products), 2 * flops
    layers = 1 if part == ranges.HEAD else shape.num_layers
    times_per_pass = layers * row["shape_flops"] / flops  # the number of layers; less if recomputation leaves some out
    part_launches = launches.get((row["run"], pass_name, part), {})
    product_counts = {kernel: count / times_per_pass for kernel, count in part_launches.items()}
    ratio = row["counted_flops"] / row["shape_flops"]
    tile_ratio = padded_ratio(ratio, product_counts, products)
    return ratio, tile_ratio, is_within_padding(ratio, tile_ratio, products)


def _launches_per_pass(merged: per_pass.Merged) -> dict[Key, dict[str, float]]:
    """Launches per pass of every kernel that multiplies matrices, of runs with counters; without rounding errors."""
    rows = merged.kernels[merged.kernels["run"].isin(merged["counter_ranges"]["run"])]
    rows = with_parts(rows[classes.is_matmul(rows["class"])])
    steps = rows["run"].map(merged.captured_steps).astype("float64")
    launches = rows.assign(launches=rows["launches"] / steps).groupby([*KEY_COLUMNS, "kernel"], sort=False)["launches"]
    launches_by_key: dict[Key, dict[str, float]] = {}
    for (*key, kernel), count in launches.sum().items():
        launches_by_key.setdefault(tuple(key), {})[kernel] = round(count, 6)
    return launches_by_key


def _flops_of_shapes(shapes: Mapping[str, ModelShape], checkpoints: pd.Series) -> dict[Key, float]:
    """The FLOPs of the matrix products in one pass, from the shapes and the values of `checkpoint`, both by run."""
    flops_by_key = {}
    for run, shape in shapes.items():
        recomputed = recomputed_flops(shape, checkpoints[run])
        for part, flops in matmul_flops(shape).items():
            flops_by_key[run, names.FORWARD, part] = flops
            flops_by_key[run, names.BACKWARD, part] = 2 * flops
            flops_by_key[run, names.RECOMPUTATION, part] = recomputed[part]
    return flops_by_key
