"""What nvidia-smi says of this host's GPUs, asked here alone. Imports no torch.

A GPU is named as nvidia-smi and CUDA_VISIBLE_DEVICES name it: by its number, or by its UUID ("GPU-..."). Where
nvidia-smi is not there, or refuses, nothing is known: every answer is empty.
"""

import subprocess

PATIENCE_S = 20
# What lowers the clocks for a reason that makes times incomparable (nvml.h, nvmlClocksEventReason*).
# Idle (0x1) and the clocks that an application set (0x2) are no throttling.
THROTTLE_BITS = {
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}


def gpus(*fields: str, gpu: str | None = None) -> list[dict[str, str]]:
    """One dictionary per GPU of the host, or for the one that is named: the text of every field.

    The fields are those of `nvidia-smi --help-query-gpu`; sizes are in MiB, clocks in MHz.
    """
    rows = [[text.strip() for text in line.split(",")] for line in _query(f"gpu={','.join(fields)}", gpu)]
    return [dict(zip(fields, row, strict=True)) for row in rows if len(row) == len(fields)]


def compute_processes(gpu: str) -> list[int]:
    """The process numbers, as the driver knows them, of the programs that use a GPU."""
    return [int(line) for line in _query("compute-apps=pid", gpu) if line.strip().isdigit()]


def said(*arguments: str) -> str:
    """What nvidia-smi prints for these arguments."""
    try:
        command = ["nvidia-smi", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def integer(text: str) -> int | None:
    """A number that nvidia-smi gave; None where it gave "[N/A]" or the like."""
    return int(text) if text.isdigit() else None


def throttle_reasons(bits: int) -> list[str]:
    """Names of the reasons in an NVML bit mask that slow the GPU down."""
    return [name for bit, name in THROTTLE_BITS.items() if bits & bit]


def throttle_reasons_in(text: str) -> list[str] | None:
    """The same for the mask as nvidia-smi writes it ("0x0000000000000004"); None where it gave none."""
    return throttle_reasons(int(text, 16)) if text.startswith("0x") else None


def _query(query: str, gpu: str | None) -> list[str]:
    chosen = [] if gpu is None else [f"--id={gpu}"]
    return said(*chosen, f"--query-{query}", "--format=csv,noheader,nounits").splitlines()
