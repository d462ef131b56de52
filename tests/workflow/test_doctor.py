"""doctor.py: what it prints of this machine and of a planned grid."""

from pathlib import Path

import pytest

from cs336_model.spec import Spec
from workflow.scripts import doctor

ROOT = Path(__file__).parents[2]
SIZES = {"d_model": 1024, "d_ff": 4096, "num_layers": 24, "num_heads": 16}
RUN = {"model": "medium", "context_length": 512, "vocab_size": 10_000, "sizes": SIZES, "mode": "train_step"}
TORCH = {"torch": "2.11.0", "cuda": "12.9", "gpu": True, "free": 8 * 2**30, "rate": 50e12}


@pytest.fixture
def host(monkeypatch):
    """A host whose GPUs, and versions of nsys and ncu, a test says."""

    def pretend(gpus=("NVIDIA H200",), **versions):
        monkeypatch.setattr(doctor.freshness, "find_gpus", lambda: (list(gpus), "580.1" if gpus else None))
        monkeypatch.setattr(doctor.freshness, "ask_version", versions.get)

    return pretend


def test_without_a_plan_and_pytorch_it_says_so(host, monkeypatch, capsys):
    host(gpus=())
    monkeypatch.setattr(doctor, "TRY_TORCH", "raise ImportError('no torch here')")
    doctor.main("missing.json")
    assert "it cannot be imported: ImportError: no torch here" in capsys.readouterr().out


def test_a_gpu_that_is_asked_for_or_cannot_be_used_is_missing(host):
    host(gpus=())
    assert doctor.describe_gpu("cuda", TORCH)[0] == "missing" and doctor.describe_gpu("auto", TORCH)[0] == "ok"
    host()
    assert doctor.describe_gpu("auto", TORCH) == ("ok", "GPU", "1 × NVIDIA H200, driver 580.1")
    assert doctor.describe_gpu("auto", TORCH | {"gpu": False})[0] == "missing"
    assert doctor.describe_ncu(True)[0] == "warning" and doctor.describe_ncu(False)[0] == "ok"


NSYS = [
    (None, "0.2.17", "warning", "none on PATH"), ("2025.3.1", "0.2.17", "ok", "2025.3.1, nvtx 0.2.17"),
    ("2024.2.3", "0.2.12", "missing", "pip install 'nvtx<0.2.12'"), ("2025.3.1", None, "missing", "pip install nvtx"),
]  # fmt: skip


@pytest.mark.parametrize(("nsys", "nvtx", "word", "says"), NSYS)
def test_nsys_must_see_the_ranges_of_nvtx(host, nsys, nvtx, word, says):
    host(nsys=nsys)
    told, subject, text = doctor.describe_nsys(True, nvtx)
    assert (told, subject) == (word, "nsys") and says in text


def test_a_package_that_is_missing_is_named():
    word, _, text = doctor.describe_packages({"torch": "2.11", "snakemake": "9"})
    assert word == "missing" and "msgspec" in text and "snakemake" not in text


def test_memory_and_time_are_those_of_the_planned_runs():
    small = Spec(run="small", **RUN | {"sizes": SIZES | {"num_layers": 1}}, warmup_steps=1, measured_steps=100)
    large = Spec(run="large", **RUN | {"sizes": SIZES | {"num_layers": 96}}, warmup_steps=1, measured_steps=100)
    word, _, text = doctor.estimate_memory([small, large], TORCH)
    assert word == "warning" and "8.0 GiB of the GPU free; large needs 24.3 GiB" in text and "1 runs need more" in text
    assert doctor.estimate_memory([small], TORCH)[0] == "ok"
    assert doctor.estimate_time([large] * 30, 40, TORCH)[2].startswith("10 of 40 measurements are finished; the others")
