"""The processor of this host. Imports no torch."""

import platform
from pathlib import Path


def cpu_name() -> str:
    """The processor's model name as Linux reports it, else what the platform calls it."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
