"""The output of nvidia-smi about this host's GPUs; only this module calls it. Imports no torch.

A GPU is named as in nvidia-smi and CUDA_VISIBLE_DEVICES: by its number, or by its UUID ("GPU-..."). If nvidia-smi is
missing or fails, every answer is empty.
"""

import subprocess

PATIENCE_S = 20
# Reasons for lower clocks that make times incomparable (nvml.h, nvmlClocksEventReason*).
# Idle (0x1) and clocks set by an application (0x2) are not throttling.
THROTTLE_BITS = {
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}


def gpus(*fields: str, gpu: str | None = None) -> list[dict[str, str]]:
    """One dictionary per GPU of the host, or for the named GPU: the text of every field.

    The fields are those of `nvidia-smi --help-query-gpu`; sizes are in MiB, clocks in MHz.
    """
    rows = [[text.strip() for text in line.split(",")] for line in _query(f"gpu={','.join(fields)}", gpu)]
    return [dict(zip(fields, row, strict=True)) for row in rows if len(row) == len(fields)]


def compute_processes(gpu: str) -> list[int]:
    """The process numbers, as the driver knows them, of the programs that use a GPU."""
    return [int(line) for line in _query("compute-apps=pid", gpu) if line.strip().isdigit()]


def output(*arguments: str) -> str:
    """The output of nvidia-smi for these arguments; "" if it fails."""
    try:
        command = ["nvidia-smi", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def integer(text: str) -> int | None:
    """A number of nvidia-smi; None for "[N/A]" or the like."""
    return int(text) if text.isdigit() else None


def throttle_reasons(bits: int) -> list[str]:
    """Names of the reasons in an NVML bit mask that slow the GPU down."""
    return [name for bit, name in THROTTLE_BITS.items() if bits & bit]


def throttle_reasons_in(text: str) -> list[str] | None:
    """The same for the mask as nvidia-smi writes it ("0x0000000000000004"); None for other texts."""
    return throttle_reasons(int(text, 16)) if text.startswith("0x") else None


def _query(query: str, gpu: str | None) -> list[str]:
    chosen = [] if gpu is None else [f"--id={gpu}"]
    return output(*chosen, f"--query-{query}", "--format=csv,noheader,nounits").splitlines()
