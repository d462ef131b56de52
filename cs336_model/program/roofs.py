"""The highest rates of this GPU: of a copy within its memory, and of a matrix multiply of each kind. Takes seconds.

    python -m cs336_model.program.roofs --output roofs.json

The fastest of several calls is taken. Numbers are random, since tensor cores are faster on zeros.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import torch

from cs336_model.program.lease import take_lease
from cs336_model.program.operator.bench import timed_calls
from kernel_tables.whole_files import written_whole

SIZE = 8192  # of the square matrices
COPY_BYTES = 2**30
FREE_MEMORY_PARTS = 8  # a matrix or buffer takes at most an eighth of the free memory
CALLS, WARMUP_CALLS = 20, 3
DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}  # by kind
# of the first GPUs whose tensor cores multiply this kind; fp32 needs none
MIN_CAPABILITIES = {"fp32": (0, 0), "tf32": (8, 0), "bf16": (8, 0), "fp16": (7, 0)}


def main(arguments: list[str] | None = None) -> None:
    """Measures all roofs, and writes a result with the rate of each: "memory", and the kinds of multiplies."""
    parser = argparse.ArgumentParser(prog="python -m cs336_model.program.roofs", description=__doc__.partition("\n")[0])
    parser.add_argument("--output", required=True, type=Path, help="file for the result, as JSON")
    parser.add_argument("--lease", type=Path, help="socket where this program asks for its GPU")
    options = parser.parse_args(arguments)
    take_lease(options.lease)
    torch.manual_seed(0)
    rates = {"memory": copy_bytes_per_s()} | {kind: matmul_flop_per_s(kind) for kind in DTYPES}
    with written_whole(options.output) as partial:
        partial.write_text(json.dumps({"status": "complete", "rates": rates}) + "\n")


def copy_bytes_per_s() -> float:
    """Bytes read and written per second by a copy too large for any cache."""
    count = min(COPY_BYTES, max_buffer_bytes()) // 4  # numbers in fp32
    source = torch.randn(count, device="cuda")
    target = torch.empty_like(source)
    return 2 * 4 * count / fastest_seconds(lambda: target.copy_(source))


def matmul_flop_per_s(kind: str) -> float | None:
    """FLOPs per second of a square matrix multiply; None if it needs tensor cores that the GPU does not have."""
    if torch.cuda.get_device_capability() < MIN_CAPABILITIES[kind]:
        return None
    size = min(SIZE, int((max_buffer_bytes() / 4) ** 0.5) // 128 * 128)  # fits in fp32; a multiple of 128
    a, b = (torch.randn(size, size, device="cuda", dtype=DTYPES[kind]) for _ in range(2))
    product = torch.empty_like(a)
    torch.set_float32_matmul_precision("high" if kind == "tf32" else "highest")
    return 2 * size**3 / fastest_seconds(lambda: torch.matmul(a, b, out=product))


def max_buffer_bytes() -> int:
    """The maximum bytes of one matrix or buffer, by the memory that is free now."""
    return torch.cuda.mem_get_info()[0] // FREE_MEMORY_PARTS


def fastest_seconds(work: Callable[[], object]) -> float:
    """The shortest of several times that this work takes on the GPU, by CUDA events."""
    timed_calls(WARMUP_CALLS, work, torch.device("cuda"))
    return min(timed_calls(CALLS, work, torch.device("cuda")))


if __name__ == "__main__":
    main()
