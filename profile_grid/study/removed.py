"""Keys, values and grids of config.yaml that earlier versions had, each with what serves instead.

CHANGELOG.md names the commit that last had them.
"""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

KEYS: dict[str, str] = {  # by dotted path in config.yaml
    "all_reduce": "question (n) has the bandwidth of every collective of a step",
    "archive": "zip -r results.zip results packs the results",
    "cold_start": "question (k) says how much longer the first step takes",
    "host_trace": "capture.nsys_options record what `kernel-tables host` reads",
    "packed": "unzip results.zip unpacks results that were packed with zip",
    "program.adapters": "a grid with `program: attention` measures a function of yours: attentions: [module:function]",
    "with_captures": "zip -r results.zip results packs the results with their captures",
}
VALUES: dict[tuple[str, str], str] = {  # by key of a product and pattern of its values
    ("attentions", "own-*"): "with `program: attention`, list your function as module:function",
    ("stages", "cold_start"): "question (k) says how much longer the first step takes",
    ("stages", "host_trace"): "capture.nsys_options record what `kernel-tables host` reads",
    ("parallels", "flat"): "list naive, ddp or fsdp",
    ("parallels", "overlapped"): "list ddp, which overlaps its all-reduces with the backward pass",
    ("parallels", "ddp-*mb"): "list ddp, whose buckets have 25 MB",
    ("parallels", "own-*"): "ddp and fsdp are PyTorch's; DDP and FSDP of your own are not measured",
    ("optimizers", "own-*"): "a sharded optimizer of your own is not measured",
    ("optimizers", "zero1"): "parallels: [fsdp] divides the state of the optimizer, too",
    ("stages", "all_reduce"): "question (n) has the bandwidth of every collective of a step",
}
GRIDS: dict[str, str] = {  # by name
    "flash": "attention-sweep measures attention alone",
    "cpu-flash": "cpu-attention-sweep measures attention alone",
    "h200-example": "cs336-2025 has the same runs, without that of the 10B model",
    "leaderboard": "add a model of its sizes to `models`, and a grid that lists it",
    "leaderboard-one-gpu": "add a model of its sizes to `models`, and a grid that lists it",
    "all-reduce": "parallel measures the collectives of training steps on one, two and four GPUs",
}


def removed_errors(config: Mapping) -> Iterator[str]:
    """A message for each key, value and grid in the configuration that was removed, with what serves instead."""
    for path, instead in KEYS.items():
        if _has(config, path.split(".")):
            yield f"{path} was removed; {instead}"
    grids = config.get("grids")
    grids = grids if isinstance(grids, Mapping) else {}  # the schema refuses anything else
    if (grid := str(config.get("grid"))) in GRIDS and grid not in grids:
        yield f"grid: {grid!r} was removed; {GRIDS[grid]}"
    for name, products in grids.items():
        for key, value in _values(products):
            for (removed_key, pattern), instead in VALUES.items():
                if key == removed_key and fnmatchcase(value, pattern):
                    yield f"grids.{name}.{key}: {value!r} was removed; {instead}"


def _has(config: object, path: list[str]) -> bool:
    """Whether nested mappings have the keys of a path."""
    if not path:
        return True
    return isinstance(config, Mapping) and path[0] in config and _has(config[path[0]], path[1:])


def _values(products: object) -> Iterator[tuple[str, str]]:
    """Every (key, value) of the lists in these products. What is no list of mappings of lists is left to the schema."""
    for product in products if isinstance(products, list) else ():
        for key, values in product.items() if isinstance(product, Mapping) else ():
            for value in values if isinstance(values, list) else ():
                yield key, str(value)
