"""Command lines of nsys, and what it says where it has no report to give."""

import os
import sys
from pathlib import Path

import pytest

from kernel_recorder.nsys_profile import CUDA_CALLS, profile_command
from profile_grid.host.leases.lease_server import Leases
from profile_grid.host.processes.job import Job
from profile_grid.stages.capture import nsys_capture
from profile_grid.stages.capture.tables import reports

SAID = """Processing [results/runs/a/capture.sqlite] with [/usr/lib/nsys/reports/gpukernsum.py]...
SKIPPED: results/runs/a/capture.sqlite does not contain CUDA kernel data.
Processing [results/runs/a/capture.sqlite] with [/usr/lib/nsys/reports/cudaapisum.py]...
SKIPPED: results/runs/a/capture.sqlite does not contain CUDA trace data.
"""


@pytest.fixture
def stats(tmp_path, monkeypatch):
    """A function that makes reports with an nsys that writes the NVTX one and says the rest; with what it was asked."""

    def run(version, said=SAID):
        script = tmp_path / "nsys"
        script.write_text(
            f"#!{sys.executable}\nimport sys\nopen({str(tmp_path / 'asked')!r}, 'w').write(' '.join(sys.argv[1:]))\n"
            "output = next(a for a in sys.argv if a.startswith('--output=')).partition('=')[2]\n"
            f"[open(f'{{output}}_{{name}}.csv', 'w').write('Range\\n:step\\n') for name in ('nvtxsum', 'nvtx_sum')]\n"
            f"print({said!r})\n"
        )
        script.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        return reports(Path("results/runs/a/capture.sqlite"), tmp_path, version), (tmp_path / "asked").read_text()

    return run


def test_a_report_that_nsys_writes_is_passed_on_as_it_is(stats):
    assert stats((2022, 4, 2))[0]["nvtx_summary"] == "Range\n:step\n"


def test_where_nsys_has_nothing_to_report_a_line_says_so(stats):
    texts, _ = stats((2022, 4, 2))
    assert texts["kernel_summary"] == "# nsys stats wrote no gpukernsum: the capture has nothing for it\n"
    assert texts["api_summary"] == "# nsys stats wrote no cudaapisum: the capture has nothing for it\n"


def test_where_nsys_fails_its_status_is_told_and_its_words_go_to_the_log_alone(stats, capfd):
    texts, _ = stats((2022, 4, 2), said="user ada on gpu-17: cannot open '/home/ada/my file' with TOKEN=s3cr3t")
    assert texts["kernel_summary"] == "# nsys stats wrote no gpukernsum: nsys stats ended with exit status 0\n"
    assert "s3cr3t" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("version", "names"),
    [
        ((2022, 4, 2), ("gpukernsum", "nvtxsum", "cudaapisum")),
        ((2025, 3, 1), ("cuda_gpu_kern_sum", "nvtx_sum", "cuda_api_sum")),
    ],
)
def test_the_reports_are_asked_for_by_the_names_of_the_version(stats, version, names):
    _, asked = stats(version)
    assert [word.partition("=")[2] for word in asked.split() if word.startswith("--report=")] == list(names)


def test_with_a_window_nsys_stops_after_it_and_lets_the_program_go_on():
    command = profile_command(["python"], Path("x"), options=["--cuda-graph-trace=node"])
    assert "--capture-range=cudaProfilerApi" in command
    assert "--capture-range-end=stop" in command
    assert command[-2:] == ["--cuda-graph-trace=node", "python"]


def test_an_option_replaces_the_default_of_its_name():
    command = profile_command(["python"], Path("x"), options=["--trace=cuda,nvtx,osrt"])
    assert [word for word in command if word.startswith("--trace")] == ["--trace=cuda,nvtx,osrt"]
    assert "--sample=none" in command and "--python-sampling=true" not in command


def test_a_range_as_a_window_begins_the_recording_where_it_is_opened():
    command = profile_command(["python"], Path("x"), window="recording@cs336_model")
    wanted = {"--capture-range=nvtx", "--nvtx-capture=recording@cs336_model", "--capture-range-end=stop"}
    assert wanted <= set(command) and command[-1] == "python"


@pytest.mark.parametrize(
    ("changes", "number", "window"),
    [
        ({}, 1, "recording@cs336_model"),
        ({}, 2, CUDA_CALLS),
        ({"nsys_options": ["--gpu-metrics-devices=0"]}, 1, CUDA_CALLS),
        ({"program": {"device": "auto", "dimensions": {"compile": "on"}}}, 1, CUDA_CALLS),
        ({"program": {"device": "cpu", "dimensions": {"compile": "off"}}}, 1, None),
    ],
)
def test_a_capture_begins_before_the_lease_unless_what_lies_before_the_window_would_burden_it(
    monkeypatch, changes, number, window
):
    monkeypatch.setattr(nsys_capture, "gpu_is_visible", lambda: True)
    plain = {"program": {"device": "auto", "dimensions": {"compile": "off"}}, "nsys_options": []}
    job = Job(plain | changes, Path(), Path(), Path("log"), 9.0, Leases())
    assert nsys_capture._window(job, number) == window


def test_without_a_window_the_whole_program_is_recorded():
    assert not any("capture-range" in word for word in profile_command(["python"], Path("x"), window=None))
