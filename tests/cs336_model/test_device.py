"""The device: how it is left, and how memory that is missing is described."""

import pytest
import torch

from cs336_model import locks
from cs336_model.device import Place, is_out_of_memory


def test_a_host_without_memory_is_out_of_memory_too():
    with pytest.raises(RuntimeError) as error:
        torch.empty(2**60, dtype=torch.int8)
    assert is_out_of_memory(error.value) and is_out_of_memory(MemoryError())
    assert not is_out_of_memory(RuntimeError("CUDA error: an illegal memory access"))


def test_a_gpu_that_is_asked_for_and_not_there_is_an_error_with_the_next_step(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "visible_gpus", list)
    with pytest.raises(SystemExit, match=r"device is 'cuda', and torch .* finds no GPU: check nvidia-smi"):
        Place("cuda", tmp_path, tmp_path / "started")


def test_who_leaves_a_place_lets_others_measure_and_still_shares(tmp_path):
    place = Place("cpu", tmp_path, tmp_path / "started")
    assert (tmp_path / "started").exists()
    for _ in range(2):
        place.share()
        locks.shared(tmp_path).release()
        assert not (tmp_path / "started").exists()
