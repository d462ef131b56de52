"""What is said of a GPU before a measurement, with a fake nvidia-smi and a fake NVML."""

import os
import sys
from types import SimpleNamespace

import pytest

from cs336_model.arguments import PROJECT_ARGUMENTS
from cs336_model.nvidia_smi import nvml
from profile_grid.host.gpu_check import notes_before
from tests.default_values import DEFAULT_VALUES

MODEL = {"d_model": 4608, "d_ff": 12288, "num_layers": 50, "num_heads": 36, "rope_theta": 10000.0}
PROGRAM = {
    "constructor": "cs336_model.model:TransformerLM",
    "arguments": PROJECT_ARGUMENTS,
    "sizes": MODEL,
    "vocab_size": 10000,
    "dimensions": {"batch_size": 4, "context_length": 512, "mode": "train_step", **DEFAULT_VALUES},
    "device": "auto",
}


class NoNvml(Exception):
    """What NVML's binding raises."""


@pytest.fixture(autouse=True)
def without_nvml(monkeypatch):
    """This machine's own NVML is asked nothing; it is opened anew where a test brings another."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    nvml.cache_clear()
    yield
    nvml.cache_clear()


def nvml_of(monkeypatch, gpu, used_mib, free_mib, reasons=0, processes=(), **others):
    """Puts in an NVML that knows one GPU, by its UUID."""

    def handle(uuid):
        if uuid != gpu:
            raise NoNvml
        return "gpu"

    def memory(device, version):
        assert (device, version) == ("gpu", 2)  # the first version counts what the driver reserves as used
        return SimpleNamespace(used=used_mib * 2**20, free=free_mib * 2**20)

    functions = {
        "NVMLError": NoNvml,
        "nvmlMemory_v2": 2,
        "nvmlInit": lambda: None,
        "nvmlDeviceGetHandleByUUID": handle,
        "nvmlDeviceGetMemoryInfo": memory,
        "NVML_CLOCK_SM": 1,
        "NVML_CLOCK_MEM": 2,
        "NVML_TEMPERATURE_GPU": 0,
        "nvmlSystemGetDriverVersion": lambda: "580.95.05",
        "nvmlDeviceGetCount": lambda: 0,
        "nvmlDeviceGetClockInfo": lambda device, clock: 1980,
        "nvmlDeviceGetTemperature": lambda device, sensor: 41,
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda device: reasons,
        "nvmlDeviceGetComputeRunningProcesses": lambda device: [SimpleNamespace(pid=pid) for pid in processes],
    }
    monkeypatch.setitem(sys.modules, "pynvml", SimpleNamespace(**functions | others))


@pytest.fixture
def nvidia_smi(tmp_path, monkeypatch):
    """A function that puts an nvidia-smi on PATH that answers with these texts and keeps what it was asked."""

    def install(memory_and_reasons, processes="", name="0, GPU-6b83"):
        gpu = memory_and_reasons
        if memory_and_reasons.count(", ") == 2:
            used, free, reasons = memory_and_reasons.split(", ")
            gpu = f"{name}, 580.95.05, 1980, 3201, 41, {reasons}, {used}, {free}"
        script = tmp_path / "nvidia-smi"
        script.write_text(
            f"#!{sys.executable}\nimport sys\n"
            f"open({str(tmp_path / 'asked')!r}, 'a').write(' '.join(sys.argv[1:]) + '\\n')\n"
            f"print({processes!r} if '--query-compute-apps=pid' in sys.argv else {gpu!r})\n"
        )
        script.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        return tmp_path / "asked"

    return install


def test_a_free_and_cool_gpu_that_is_large_enough_gets_no_note(nvidia_smi):
    nvidia_smi("571, 200000, 0x0000000000000001")
    assert notes_before(PROGRAM, ["0"]) == []


def test_a_gpu_with_another_users_process_is_said_to_be_in_use(nvidia_smi):
    nvidia_smi("20480, 200000, 0x0000000000000000", "4711\n4712")
    assert notes_before(PROGRAM, ["0"]) == [
        "the GPU was in use by 2 other processes before the run (20.0 GiB of its memory taken)"
    ]


def test_memory_taken_by_a_process_that_a_container_does_not_show_is_said_too(nvidia_smi):
    nvidia_smi("20480, 200000, 0x0000000000000000")
    assert notes_before(PROGRAM, ["0"]) == [
        "the GPU was in use by somebody before the run (20.0 GiB of its memory taken)"
    ]


def test_a_hot_gpu_is_said_to_be_throttled_but_idle_and_the_power_cap_are_no_heat(nvidia_smi):
    nvidia_smi("571, 200000, 0x0000000000000064")  # software power cap, software and hardware thermal slowdown
    assert notes_before(PROGRAM, ["0"]) == [
        "the GPU was throttled before the run: software thermal slowdown, hardware thermal slowdown"
    ]


def test_less_free_memory_than_the_run_needs_is_said_before_it_starts(nvidia_smi):
    nvidia_smi("571, 143000, 0x0000000000000001")
    (note,) = notes_before(PROGRAM, ["0"])
    assert note.endswith("GiB of GPU memory needed (estimated), 139.6 GiB free")
    assert notes_before(PROGRAM | {"dimensions": PROGRAM["dimensions"] | {"mode": "forward"}}, ["0"]) == []


def test_nothing_is_known_about_the_memory_of_other_peoples_models(nvidia_smi):
    nvidia_smi("571, 100, 0x0000000000000001")
    assert notes_before(PROGRAM | {"constructor": "cs336_basics.model:BasicsTransformerLM"}, ["0"]) == []


def test_the_gpu_that_is_asked_about_is_the_one_that_is_leased(nvidia_smi):
    asked = nvidia_smi("20480, 200000, 0x0")
    assert len(notes_before(PROGRAM, ["GPU-6b83"])) == 1
    assert "--id=GPU-6b83 --query-compute-apps=pid" in asked.read_text()
    assert notes_before(PROGRAM, ["GPU-another"]) == []


@pytest.mark.parametrize("answer", ["No devices were found", "[N/A], [N/A], [N/A]", "571, [N/A], 0x0", ""])
def test_an_nvidia_smi_without_an_answer_is_no_note(nvidia_smi, answer):
    nvidia_smi(answer)
    assert notes_before(PROGRAM, ["0"]) == []


def test_without_nvidia_smi_there_is_no_note(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert notes_before(PROGRAM, ["0"]) == []


def test_a_run_without_a_gpu_asks_nothing_about_gpus(nvidia_smi):
    asked = nvidia_smi("20480, 100, 0x0", "4711")
    assert notes_before(PROGRAM, []) == []
    assert not asked.exists()


@pytest.mark.parametrize(
    ("used", "free", "reasons", "processes"),
    [
        (571, 200000, 0x1, ()),
        (20480, 143000, 0x64, (4711, 4712)),
        (2048, 200000, 0x0, (4711,)),
        (20480, 200000, 0x8, ()),
    ],
)
@pytest.mark.parametrize("others_may_end", [False, True])
def test_nvml_and_nvidia_smi_give_the_same_notes_and_nvml_starts_no_process(
    nvidia_smi, monkeypatch, used, free, reasons, processes, others_may_end
):
    asked = nvidia_smi(f"{used}, {free}, 0x{reasons:016x}", "\n".join(map(str, processes)))
    expected = notes_before(PROGRAM, ["GPU-6b83"], others_may_end=others_may_end)
    asked.unlink()
    nvml_of(monkeypatch, "GPU-6b83", used, free, reasons, processes)
    nvml.cache_clear()
    assert notes_before(PROGRAM, ["GPU-6b83"], others_may_end=others_may_end) == expected
    assert not asked.exists()


def fails(*arguments, **options):
    raise NoNvml


@pytest.mark.parametrize(
    ("gpu", "others"),
    [
        ("0", {}),
        ("GPU-6b83", {"nvmlInit": fails}),
        ("GPU-6b83", {"nvmlDeviceGetCurrentClocksThrottleReasons": fails}),
    ],
    ids=["named by its number", "no driver", "a driver that tells less"],
)
def test_nvidia_smi_is_asked_where_nvml_does_not_know_the_gpu(nvidia_smi, monkeypatch, gpu, others):
    nvidia_smi("20480, 200000, 0x0000000000000000", "4711")
    nvml_of(monkeypatch, "GPU-6b83", 571, 200000, **others)
    assert notes_before(PROGRAM, [gpu]) == [
        "the GPU was in use by 1 other process before the run (20.0 GiB of its memory taken)"
    ]
