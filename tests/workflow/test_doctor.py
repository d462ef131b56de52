"""doctor.py: what it prints of this machine and of a planned grid."""

from types import SimpleNamespace

import msgspec
import pytest

from cs336_model.spec import Spec
from workflow.scripts import doctor

SIZES = {"d_model": 1024, "d_ff": 4096, "num_layers": 24, "num_heads": 16}
RUN = {"run": "medium", "context_length": 512, "vocab_size": 10_000, "sizes": SIZES, "mode": "train_step"}


@pytest.fixture
def said(monkeypatch, capsys, tmp_path):
    """A function: the word and the text by subject, on a host with these GPUs and versions, and this PyTorch."""

    def run(gpus=("NVIDIA H200",), torch="print(1, 50e12, '2.11')", device="auto", nvtx="0.2.17", **versions):
        monkeypatch.setattr(doctor.freshness, "find_gpus", lambda: (list(gpus), "580.1" if gpus else None))
        monkeypatch.setattr(doctor.freshness, "ask_version", versions.get)
        monkeypatch.setattr(doctor, "distributions", lambda name: [SimpleNamespace(version=nvtx)] if nvtx else [])
        monkeypatch.setattr(doctor, "TRY_TORCH", torch)
        spec = msgspec.to_builtins(Spec(**RUN, device=device, warmup_steps=1, measured_steps=1000))
        (tmp_path / "plan.json").write_bytes(msgspec.json.encode({"missing.json": {"spec": spec}}))
        doctor.main(str(tmp_path / "plan.json"))
        lines = [line.split(maxsplit=2) for line in capsys.readouterr().out.splitlines()]
        return {subject: (word, text) for word, subject, text in lines}

    return run


def test_it_says_what_is_there_and_how_long_the_grid_takes(said):
    lines = said(nsys="2025.3.1", ncu="2025.3.1")
    assert {word for word, _ in lines.values()} == {"ok"}
    assert lines["GPU"][1] == "1 × NVIDIA H200, driver 580.1" and lines["nsys"][1] == "2025.3.1, nvtx 0.2.17"
    assert lines["torch"][1] == "2.11"
    assert lines["time"][1] == "0 of 1 measurements are finished; the others take roughly 2 min"


def test_a_gpu_that_is_asked_for_or_cannot_be_used_is_missing(said):
    assert said(gpus=(), device="cuda")["GPU"][0] == "missing" and said(gpus=())["GPU"][0] == "warning"
    assert said(gpus=(), device="cpu")["GPU"][0] == "ok"
    assert "install one built for the driver" in said(torch="print(0, 1e9, '2.11')")["GPU"][1]
    broken = said(torch="raise ImportError('no torch here')")
    assert broken["torch"] == ("missing", "it cannot be used: ImportError: no torch here")
    assert said()["ncu"][0] == "warning" and said(gpus=())["ncu"][0] == "ok"


@pytest.mark.parametrize(
    ("nsys", "nvtx", "word", "says"),
    [
        (None, "0.2.17", "warning", "none on PATH"),
        ("2024.2.3", "0.2.12", "missing", "pip install 'nvtx<0.2.12'"),
        ("2025.3.1", None, "missing", "pip install nvtx"),
    ],
)
def test_nsys_must_see_the_ranges_of_nvtx(said, nsys, nvtx, word, says):
    told, text = said(nsys=nsys, nvtx=nvtx)["nsys"]
    assert told == word and says in text
