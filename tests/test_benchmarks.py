"""Each benchmark of reading runs at a small size, and prints its ratios."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def ratios(name: str, *arguments: object) -> dict[str, float]:
    """What a benchmark prints: the ratio of each quantity."""
    command = [sys.executable, f"benchmarks/{name}.py", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found = re.findall(r"^(.+): .+ ratio(?: to the file)? ([0-9.]+)$", done.stdout, re.MULTILINE)
    return {quantity: float(ratio) for quantity, ratio in found}


def test_reading_a_capture_is_compared_with_a_bare_read():
    found = ratios("read_capture", "--kernels", 2000, "--repeats", 1)
    assert set(found) == {"wall time", "processor time", "peak memory"} and min(found.values()) > 1


def test_reading_a_trace_is_compared_with_json_load():
    found = ratios("read_trace", "--megabytes", 1, "--repeats", 1)
    assert set(found) == {"MB per second of the processor", "peak memory"} and min(found.values()) > 0
