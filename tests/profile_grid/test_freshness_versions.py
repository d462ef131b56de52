"""Whether this host would measure with other versions, or on another device, than a result names."""

import platform
from dataclasses import replace
from types import SimpleNamespace

import pytest

from cs336_model.cpu import cpu_name
from profile_grid.freshness import versions
from profile_grid.freshness.environment import RecordedEnvironment
from profile_grid.freshness.versions import MachineVersions

GIVEN = RecordedEnvironment({}, None, {}, planners_python=True, gpus=[])
ON_CPU = MachineVersions("cpu", cpu_name(), cpu_name(), None, platform.python_version())
ON_GPU = MachineVersions("cuda", "NVIDIA H200", "Some CPU", "580.82", platform.python_version())
AUTO = {"backend": "auto", "program": {"device": "auto"}}


@pytest.fixture
def host(monkeypatch):
    """A function that gives this host GPUs of these names, a driver and an nsys."""

    def has(*gpus, driver="580.82", nsys=None, ncu=None):
        monkeypatch.setattr(versions, "gpu_names", lambda: gpus)
        monkeypatch.setattr(versions, "driver_version", lambda: driver)
        monkeypatch.setattr(versions, "nsys_version", lambda: nsys)
        monkeypatch.setattr(versions, "ncu_version", lambda: ncu)
        monkeypatch.setattr(versions, "profiler_of_this_machine", lambda: "nsys" if nsys and gpus else "torch")

    has()
    return has


def test_the_kind_of_device_is_the_model_of_the_processor_or_of_any_gpu(host):
    assert versions.is_kind_of_device(ON_CPU)
    assert not versions.is_kind_of_device(replace(ON_CPU, device_name="Another CPU"))
    assert not versions.is_kind_of_device(ON_GPU)
    host("NVIDIA H100", "NVIDIA H200")
    assert versions.is_kind_of_device(ON_GPU)


@pytest.mark.parametrize(
    ("machine", "distributions", "facts", "reason"),
    [
        (ON_GPU, {}, {}, None),
        (replace(ON_GPU, driver="570.1"), {}, {}, "the driver was 570.1 and is 580.82"),
        (replace(ON_GPU, driver=None), {}, {}, None),
        (replace(ON_GPU, python="3.9.1"), {}, {}, f"Python was 3.9.1 and is {platform.python_version()}"),
        (ON_GPU, {"pytest": pytest.__version__}, {}, None),
        (ON_GPU, {"pytest": "0.1"}, {}, f"pytest was 0.1 and is {pytest.__version__}"),
        (ON_GPU, {"torch": "1.0.0"}, {}, f"torch was 1.0.0 and is {versions.present_version('torch')}"),
        (ON_GPU, {"no-such-package": "1.0"}, {}, None),
        (ON_GPU, {}, {"backend": "nsys", "nsys": "2025.3.1"}, None),
        (ON_GPU, {}, {"backend": "nsys", "nsys": "2024.1.1"}, "nsys was 2024.1.1 and is 2025.3.1"),
        (ON_GPU, {}, {"ncu": "2025.3.1.0"}, None),
        (ON_GPU, {}, {"ncu": "2024.1.1.0"}, "ncu was 2024.1.1.0 and is 2025.3.1.0"),
        (ON_CPU, {}, {"backend": "torch", "nsys": None}, None),
    ],
)
def test_another_version_is_another_result(host, machine, distributions, facts, reason):
    host("NVIDIA H200", nsys="2025.3.1", ncu="2025.3.1.0")
    expected = reason and f"a version has changed: {reason}"
    assert versions.changed_version(machine, distributions, facts, {"program": {"device": "auto"}}) == expected


def test_a_capture_by_pytorchs_profiler_is_stale_where_nsys_would_be_chosen_now(host):
    facts = {"backend": "torch", "nsys": None}
    host("NVIDIA H200")
    assert versions.changed_version(ON_GPU, {}, facts, AUTO) is None
    host("NVIDIA H200", nsys="2025.3.1")
    assert versions.changed_version(ON_GPU, {}, facts, AUTO) == (
        "the profiler has changed: it was PyTorch's and is nsys"
    )
    assert versions.changed_version(ON_GPU, {}, facts, AUTO | {"backend": "torch"}) is None
    assert versions.changed_version(ON_GPU, {}, {}, AUTO) is None


def test_what_the_processor_measured_since_no_gpu_was_visible_is_stale_where_one_is(host):
    program = {"device": "auto"}
    assert versions.changed_device(program, ON_CPU, GIVEN) is None
    host("NVIDIA H200")
    reason = "the device has changed: it was the processor and is NVIDIA H200"
    assert versions.changed_device(program, ON_CPU, GIVEN) == reason
    assert versions.changed_device({"device": "cpu"}, ON_CPU, GIVEN) is None
    assert versions.changed_device(program, ON_GPU, GIVEN) is None
    # a PyTorch without CUDA chose the processor beside the GPU, and would again
    assert versions.changed_device(program, ON_CPU, replace(GIVEN, gpus=["NVIDIA H200"])) is None


def test_versions_are_not_compared_where_another_python_plans_than_measures(host, monkeypatch):
    assert versions.is_same_machine(ON_CPU, GIVEN)
    assert not versions.is_same_machine(ON_GPU, GIVEN)
    assert not versions.is_same_machine(ON_CPU, replace(GIVEN, planners_python=False))
    monkeypatch.setenv(versions.PREFIX_VARIABLE, "/another/environment")
    assert not versions.is_same_machine(ON_CPU, GIVEN)
    assert versions.host_record() == {"planners_python": False, "gpus": []}


@pytest.fixture
def two_gpus(monkeypatch):
    """A function that sets CUDA_VISIBLE_DEVICES, or leaves it unset, on a host with an H200 and an H100."""
    names, uuids = ["NVIDIA H200", b"NVIDIA H100"], ["GPU-6b83", b"GPU-6c77"]
    pynvml = SimpleNamespace(
        nvmlSystemGetDriverVersion=lambda: b"580.82",
        nvmlDeviceGetCount=lambda: len(names),
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetName=lambda index: names[index],
        nvmlDeviceGetUUID=lambda index: uuids[index],
    )
    monkeypatch.setattr(versions.nvidia_smi, "nvml", lambda: pynvml)
    monkeypatch.setattr(versions, "gpu_is_visible", lambda: True)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def show(visible):
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        forget()

    yield show
    forget()


@pytest.mark.parametrize(
    ("visible", "gpus"),
    [
        (None, ("H200", "H100")),
        ("", ()),
        ("-1", ()),
        ("0", ("H200",)),
        ("1, 0", ("H100", "H200")),
        ("GPU-6c77", ("H100",)),
        ("GPU-6c,0", ("H100", "H200")),
        ("GPU-6", ()),  # which of the two
        ("1,-1,0", ("H100",)),
        ("1,2,0", ("H100",)),
        ("NoDevFiles", ()),
        ("MIG-5c", ("H200", "H100")),
    ],
)
def test_the_gpus_are_those_that_cuda_shows_in_its_order(two_gpus, visible, gpus):
    two_gpus(visible)
    assert versions.gpu_names() == tuple(f"NVIDIA {name}" for name in gpus)
    assert versions.driver_version() == ("580.82" if gpus else None)


def test_what_the_processor_measured_stays_where_the_gpus_are_hidden(two_gpus):
    two_gpus("-1,0")
    assert versions.host_record()["gpus"] == []
    assert versions.changed_device({"device": "auto"}, ON_CPU, GIVEN) is None


def forget():
    for function in (versions._gpus, versions.gpu_names, versions.driver_version):
        function.cache_clear()


def test_the_version_of_nsys_is_asked_for_again_where_another_file_is_on_path(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert_version(tmp_path / "nsys", "2025.3.1.90")
    assert_version(tmp_path / "nsys", "2026.1.1.2222")
    (tmp_path / "nsys").write_text("#!/bin/sh\nexit 1\n")
    assert versions.nsys_version() is None


def assert_version(nsys, version):
    nsys.write_text(f"#!/bin/sh\necho NVIDIA Nsight Systems version {version}\n")
    nsys.chmod(0o755)
    assert versions.nsys_version() == version
