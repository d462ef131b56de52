"""What is read from NVML and nvidia-smi, with stand-ins for both."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from cs336_model.program import gpu_state
from cs336_model.program.gpu_state import GpuState, other_processes, throttle_reasons

UUID = "GPU-6b83273f-51cf-d5cd-703d-29ea8dd55b8f"


def test_idle_and_application_clocks_are_no_throttling():
    assert throttle_reasons(0x1 | 0x2) == []
    assert throttle_reasons(0x4 | 0x20) == ["software power cap", "software thermal slowdown"]


@pytest.mark.parametrize(("pids", "expected"), [([], None), ([7], 0), ([7, 8, 9], 2)])
def test_one_of_the_processes_on_the_gpu_is_this_one(pids, expected):
    assert other_processes(pids) == expected


def test_without_a_gpu_nothing_is_asked(monkeypatch):
    monkeypatch.setattr(subprocess, "run", lambda *args, **kwargs: pytest.fail("nothing should run"))
    assert gpu_state.gpu_state(None) == GpuState()


def test_nvidia_smi_answers_where_there_is_no_nvml(monkeypatch):
    answers = {
        f"--query-gpu={gpu_state._SMI_FIELDS}": "580.95.05, 1980, 3201, 41, 0x0000000000000004\n",
        "--query-compute-apps=pid": "101\n202\n",
    }

    def run(command, **kwargs):
        assert command[:2] == ["nvidia-smi", f"--id={UUID}"]
        return SimpleNamespace(stdout=answers[command[2]])

    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(subprocess, "run", run)
    assert gpu_state.gpu_state(UUID) == GpuState(
        driver="580.95.05",
        sm_clock_mhz=1980,
        memory_clock_mhz=3201,
        temperature_c=41,
        throttle_reasons=["software power cap"],
        other_processes=1,
    )


def test_a_machine_without_either_knows_nothing(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setenv("PATH", "")
    assert gpu_state.gpu_state(UUID) == GpuState()


def test_nvml_is_asked_for_the_gpu_of_this_uuid(monkeypatch):
    class FakeNvml:
        NVMLError = type("NVMLError", (Exception,), {})
        NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

        nvmlInit = staticmethod(lambda: None)
        nvmlDeviceGetHandleByUUID = staticmethod(lambda uuid: {UUID: "gpu"}[uuid])
        nvmlSystemGetDriverVersion = staticmethod(lambda: b"580.95.05")
        nvmlDeviceGetClockInfo = staticmethod(lambda gpu, clock: {1: 1980, 2: 3201}[clock])
        nvmlDeviceGetTemperature = staticmethod(lambda gpu, sensor: 41)
        nvmlDeviceGetCurrentClocksThrottleReasons = staticmethod(lambda gpu: 0)
        nvmlDeviceGetComputeRunningProcesses = staticmethod(lambda gpu: [SimpleNamespace(pid=5)])

    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml)
    assert gpu_state.gpu_state(UUID) == GpuState("580.95.05", 1980, 3201, 41, [], 0)
