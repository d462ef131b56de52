"""Each benchmark of reading runs at a small size, and prints its ratios."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("arguments", "quantities"),
    [
        (["read_capture.py", "--kernels", "2000"], {"wall time", "processor time", "peak memory"}),
        (["read_trace.py", "--megabytes", "1"], {"MB per second of the processor", "peak memory"}),
    ],
)
def test_reading_is_compared_with_a_bare_read(arguments, quantities):
    command = [sys.executable, *arguments, "--repeats", "1"]
    done = subprocess.run(command, cwd=ROOT / "benchmarks", capture_output=True, text=True, check=True)
    found = re.findall(r"^(.+): .+ ratio(?: to the file)? ([0-9.]+)$", done.stdout, re.MULTILINE)
    assert {quantity for quantity, _ in found} == quantities and min(float(ratio) for _, ratio in found) > 0
