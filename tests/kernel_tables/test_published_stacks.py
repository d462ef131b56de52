"""What of sampled Python stacks may be shown to anybody: functions and files, without folders and other payloads."""

import sqlite3
import tracemalloc
from contextlib import closing

import pytest

from kernel_tables.reading.capture import Capture
from kernel_tables.reading.publishable import write_publishable
from kernel_tables.reading.python_samples import frames_of, module_name
from tests.kernel_tables.synthetic import Synthetic

CANARY = "CANARYq7x"


def test_sampled_python_stacks_stay_with_functions_and_files_without_folders(tmp_path):
    made = Synthetic().range("step", 0, 9)
    made.python_sample(
        5, ("norm", f"/home/{CANARY}/x y/model.py"), ("run", "/v/lib/python3.12/site-packages/torch/_x.py")
    )
    made.string(f"PATH=/home/{CANARY}")
    write_publishable(made.write(tmp_path / "full.sqlite"), tmp_path / "published.sqlite")
    with closing(sqlite3.connect(tmp_path / "published.sqlite")) as copy:
        assert sorted(copy.execute("SELECT value FROM StringIds")) == [
            ("model",),
            ("norm",),
            ("run",),
            ("torch._x",),
        ]
    assert CANARY.encode() not in (tmp_path / "published.sqlite").read_bytes()
    with Capture(tmp_path / "full.sqlite") as full, Capture(tmp_path / "published.sqlite") as copy:
        assert full.python_samples() == copy.python_samples()
        assert [sample.frames for sample in copy.python_samples()] == [("norm (model)", "run (torch._x)")]


def test_no_other_payload_stays_nor_a_name_that_no_python_has(tmp_path):
    """A payload of another domain, of another layout, or that refers to what is no name of a function or file."""
    made = Synthetic().domain(3, "NCCL")
    made.python_sample(5, (f"{CANARY}=1", f"/{CANARY}")).python_sample(6, ("norm", "model.py"))
    made.rows["NVTX_EVENTS"].append({"start": 7, "eventType": 34, "domainId": 3, "binaryData": CANARY.encode()})
    made.rows["NVTX_EVENTS"][-2]["binaryData"] += CANARY.encode()
    write_publishable(made.write(tmp_path / "full.sqlite"), tmp_path / "published.sqlite")
    assert CANARY.encode() not in (tmp_path / "published.sqlite").read_bytes()
    with Capture(tmp_path / "published.sqlite") as copy:
        assert [sample.frames for sample in copy.python_samples()] == [("(unknown)",), ()]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/usr/lib/python3.12/threading.py", "threading"),
        ("/v/lib/python3.12/site-packages/torch/nn/modules/linear.py", "torch.nn.modules.linear"),
        ("C:\\Users\\me\\own.py", "own"),
        ("/home/me/python3.12/own.py", "own"),
        ("/home/me/secret/cs336_model/ranges.py", "cs336_model.ranges"),
        ("/home/me/cs336_model/secret/model.py", "model"),
        ("/home/me/lib/python3.12/secret/own.py", "own"),
        ("json/secret/own.py", "own"),
        ("/site-packages/../me/own.py", None),
        ("&lt;frozen importlib._bootstrap&gt;", "<frozen importlib._bootstrap>"),
        ("/home/me/TOKEN=abc.py", None),
        ("/etc/passwd", None),
        pytest.param("a" * 500_000, None, id="no folder in half a million characters"),
    ],
)
def test_of_a_file_its_name_in_its_package_is_told(path, name):
    assert module_name(path) == name


def test_a_payload_as_nsys_wrote_it_has_its_frames_innermost_first():
    """Of nsys 2025.3.1: two frames, of functions 419 and 422 in file 420, at lines 3 and 7."""
    written = (
        "0100000000000000 0200000001000000 4000000000000000 2000000000000000 0100000000000000 01000000 02000000"
        "a301000000000000 a401000000000000 0300000000000000 a601000000000000 a401000000000000 0700000000000000"
    )
    payload = bytes.fromhex(written)
    assert frames_of(payload) == ((419, 420, 3), (422, 420, 7))
    assert frames_of(payload[:-1]) is frames_of(payload + b"x") is frames_of(payload[8:]) is frames_of(None) is None


def test_stacks_are_not_held_all_at_once(tmp_path):
    """The payloads of 100 stacks of 100 frames are 0.25 MB, their frames, three numbers each, 0.8."""
    made = Synthetic().range("step", 0, 999)
    for at_ns in range(100):
        made.python_sample(at_ns, *[("norm", "model.py"), ("run", "train.py")] * 50)
    source = made.write(tmp_path / "full.sqlite")
    tracemalloc.start()
    try:
        write_publishable(source, tmp_path / "published.sqlite")
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 250_000
