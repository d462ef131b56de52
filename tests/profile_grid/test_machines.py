import pandas as pd

from profile_grid.tables.measured import by_machine, command_to_measure_again
from tests.profile_grid.made_up import H200, STATUS_OF_OTHERS


def runs(*machines: dict) -> pd.DataFrame:
    return pd.DataFrame([{"run": f"run{i}", **machine} for i, machine in enumerate(machines)])


def groups(*machines: dict) -> list[list[str]]:
    return [names for _, names in by_machine(runs(*machines))]


def test_runs_of_one_machine_are_one_group():
    assert groups(H200, H200) == [["run0", "run1"]]


def test_another_driver_torch_gpu_profiler_or_nsys_is_another_machine():
    for change in (
        {"driver": "570.1"},
        {"torch": "2.10.0"},
        {"device_name": "H100"},
        {"backend": "torch"},
        {"nsys": "2024.2"},
        {"gpu_uuid_sha256": "77aa"},
        {"python": "3.11.2"},
        {"cpu_name": "Another CPU"},
        {"cores": 8},
        {"threads": 1},
    ):
        assert groups(H200, {**H200, **change}, H200) == [["run0", "run2"], ["run1"]]


def test_a_run_that_failed_before_it_could_say_where_joins_the_machine_it_does_not_contradict():
    unsaid = dict.fromkeys(H200)
    assert groups(unsaid, {**unsaid, "device_name": "H100"}, H200) == [["run0", "run2"], ["run1"]]


def test_machines_have_titles_that_tell_them_apart():
    (first, _), (second, _) = by_machine(runs(H200, {**H200, "backend": "torch", "nsys": None}))
    assert first.title == "NVIDIA H200, driver 580.82, CUDA 13.0, PyTorch 2.11.0, Nsight Systems 2025.3.1"
    assert second.title == "NVIDIA H200, driver 580.82, CUDA 13.0, PyTorch 2.11.0, PyTorch's own profiler"


def test_machines_whose_titles_would_be_the_same_are_told_apart_by_what_differs():
    twin = {**H200, "gpu_uuid_sha256": "0123456789abcdef", "cores": 8}
    (first, _), (second, _) = by_machine(runs(H200, twin))
    assert first.title.endswith("Nsight Systems 2025.3.1, GPU 5f2a, cores 16")
    assert second.title.endswith("Nsight Systems 2025.3.1, GPU 0123456789ab, cores 8")


def test_the_command_names_the_measurements_of_these_runs_and_no_others():
    row = {"run": "small_ctx128_forward", "timing_status": "complete", "capture_status": "incomplete"}
    assert command_to_measure_again(pd.DataFrame([row | STATUS_OF_OTHERS])).split() == [
        "snakemake", "--cores", "1", "all", "--forcerun", "\\",
        "results/runs/small_ctx128_forward/timing.json", "\\",
        "results/runs/small_ctx128_forward/capture.json",
    ]  # fmt: skip
