"""What is read from NVML and nvidia-smi, with stand-ins for both."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from cs336_model import nvidia_smi
from cs336_model.nvidia_smi import GpuState, nvml, throttle_reasons
from cs336_model.program import lease
from cs336_model.program.device import other_processes

UUID = "GPU-6b83273f-51cf-d5cd-703d-29ea8dd55b8f"


@pytest.fixture(autouse=True)
def opened_anew():
    """A test opens the NVML that it brings, and leaves none open."""
    nvml.cache_clear()
    yield
    nvml.cache_clear()


def test_idle_and_application_clocks_are_no_throttling():
    assert throttle_reasons(0x1 | 0x2) == []
    assert throttle_reasons(0x4 | 0x20) == ["software power cap", "software thermal slowdown"]


@pytest.mark.parametrize(("count", "expected"), [(None, None), (0, None), (1, 0), (3, 2)])
def test_one_of_the_processes_on_the_gpu_is_this_one(count, expected):
    assert other_processes(count) == expected


def test_without_a_gpu_nothing_is_asked(monkeypatch):
    monkeypatch.setattr(subprocess, "run", lambda *args, **kwargs: pytest.fail("nothing should run"))
    assert nvidia_smi.gpu_state(None) == GpuState()


def test_nvidia_smi_answers_where_there_is_no_nvml(monkeypatch):
    answers = {
        "--query-gpu=index,uuid,driver_version,clocks.current.sm,clocks.current.memory,temperature.gpu,"
        "clocks_throttle_reasons.active,memory.used,memory.free": "0, GPU-other, 1, 1, 1, 1, 0x0, 1, 1\n"
        f"1, {UUID}, 580.95.05, 1980, 3201, 41, 0x0000000000000004, 571, [N/A]\n",
        "--query-compute-apps=pid": "101\n202\n",
    }

    def run(command, **kwargs):
        assert command[1] == f"--id={UUID}" or command[1].startswith("--query-gpu")
        return SimpleNamespace(stdout=answers[command[-2]])

    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(subprocess, "run", run)
    assert nvidia_smi.gpu_state(UUID) == GpuState(
        driver="580.95.05",
        sm_clock_mhz=1980,
        memory_clock_mhz=3201,
        temperature_c=41,
        throttle_reasons=["software power cap"],
        processes=2,
        used_bytes=571 * 2**20,
        host_uuids=("GPU-other", UUID),
    )


@pytest.mark.parametrize(
    ("answer", "count"), [("", 0), ("101\n202\n", 2), ("[Not Supported]\n", None), ("101\n[N/A]\n", None), (None, None)]
)
def test_processes_that_nvidia_smi_does_not_tell_are_unknown_and_not_none(monkeypatch, answer, count):
    monkeypatch.setattr(nvidia_smi, "output", lambda *arguments: answer)
    assert nvidia_smi.compute_process_count(UUID) == count


def test_nvidia_smi_that_fails_for_the_processes_alone_leaves_their_number_unknown(monkeypatch, tmp_path):
    fields = f"0, {UUID}, 580.95.05, 1980, 3201, 41, 0x0000000000000000, 571, 200000"
    (tmp_path / "nvidia-smi").write_text(f'#!/bin/sh\ncase "$*" in *query-gpu*) echo "{fields}";; *) exit 9;; esac\n')
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.setitem(sys.modules, "pynvml", None)
    state = nvidia_smi.gpu_state(UUID)
    assert (state.temperature_c, state.processes) == (41, None)


def test_nvidia_smi_that_answers_in_another_form_or_fails_or_is_absent_tells_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert nvidia_smi.gpus("name", "uuid") == []
    for script in ("echo No devices were found", "echo one, two; exit 9", "echo one, two, three"):
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "nvidia-smi").chmod(0o755)
        assert nvidia_smi.gpus("name", "uuid") == []


def test_every_gpu_of_the_host_is_told_where_none_is_named(monkeypatch, tmp_path):
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho 0, GPU-a\necho 1, GPU-b\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert nvidia_smi.gpus("index", "uuid") == [{"index": "0", "uuid": "GPU-a"}, {"index": "1", "uuid": "GPU-b"}]


def test_a_machine_without_either_knows_nothing(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setenv("PATH", "")
    assert nvidia_smi.gpu_state(UUID) == GpuState()


def test_nvml_is_asked_for_the_gpu_of_this_uuid(monkeypatch):
    class FakeNvml:
        NVMLError = type("NVMLError", (Exception,), {})
        NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

        nvmlInit = staticmethod(lambda: None)
        nvmlDeviceGetCount = staticmethod(lambda: 2)
        nvmlDeviceGetHandleByIndex = staticmethod(lambda index: index)
        nvmlDeviceGetUUID = staticmethod(lambda gpu: [b"GPU-other", UUID.encode()][gpu])
        nvmlDeviceGetHandleByUUID = staticmethod(lambda uuid: {UUID: "gpu"}[uuid])
        nvmlSystemGetDriverVersion = staticmethod(lambda: b"580.95.05")
        nvmlDeviceGetClockInfo = staticmethod(lambda gpu, clock: {1: 1980, 2: 3201}[clock])
        nvmlDeviceGetTemperature = staticmethod(lambda gpu, sensor: 41)
        nvmlDeviceGetCurrentClocksThrottleReasons = staticmethod(lambda gpu: 0)
        nvmlMemory_v2 = 2
        nvmlDeviceGetMemoryInfo = staticmethod(lambda gpu, version: SimpleNamespace(used=5, free=7))
        nvmlDeviceGetComputeRunningProcesses = staticmethod(lambda gpu: [SimpleNamespace(pid=5)])

    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml)
    assert nvidia_smi.gpu_state(UUID) == GpuState("580.95.05", 1980, 3201, 41, [], 1, 5, 7, ("GPU-other", UUID))


def test_nvml_is_opened_once_and_where_there_is_no_driver_it_is_none(monkeypatch):
    class NVMLError(Exception):
        pass

    def without_driver():
        raise NVMLError

    opened = []
    monkeypatch.setitem(sys.modules, "pynvml", SimpleNamespace(NVMLError=NVMLError, nvmlInit=lambda: opened.append(1)))
    assert nvml() is nvml() is sys.modules["pynvml"]
    assert opened == [1]
    nvml.cache_clear()
    monkeypatch.setitem(sys.modules, "pynvml", SimpleNamespace(NVMLError=NVMLError, nvmlInit=without_driver))
    assert nvml() is None


def test_nvml_is_opened_before_a_lease_is_asked_for_and_not_where_there_is_none_to_ask_for(monkeypatch, tmp_path):
    def asks(*arguments):
        did.append("asked")
        raise ConnectionError

    did = []
    fake = SimpleNamespace(NVMLError=RuntimeError, nvmlInit=lambda: did.append("opened"))
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.setattr(lease.socket, "socket", asks)
    assert lease.take_lease(None) == ()
    assert did == []
    with pytest.raises(ConnectionError):
        lease.take_lease(tmp_path / "socket")
    assert did == ["opened", "asked"]


def test_a_giver_that_has_removed_its_socket_is_gone(tmp_path):
    with pytest.raises(ConnectionError, match="no lease of a GPU was given"):
        lease.take_lease(tmp_path / "removed")
