"""What people and CI get from the commands: text in a pipe, an exit status, a page that replaces only a page."""

import json
from pathlib import Path

import pytest

from kernel_recorder.context import recorded
from kernel_tables.__main__ import main
from tests.kernel_tables.diagnosis.program import GEMM, SGEMM, Program
from tests.kernel_tables.synthetic import Synthetic


@pytest.fixture
def capture(tmp_path) -> Path:
    """Steps of which matrix multiplies without tensor cores take two thirds."""
    program = Program()
    for _ in range(3):
        with program.range("step"):
            program.pause(1)
            with program.range("forward"):
                program.launch(SGEMM, 200)
                program.launch(GEMM, 100)
            program.pause(1)
    return program.capture.write(tmp_path / "capture.sqlite")


def test_text_goes_to_a_pipe_and_to_a_file_where_it_is_asked_for(capture, tmp_path, capsys):
    for command in (["ranges", "--tree"], ["kernels"], ["classes"], ["diagnose"], ["host"], ["check"]):
        assert main([command[0], str(capture), *command[1:], "--format", "text"]) == 0
        text = capsys.readouterr().out
        assert text and "_ns" not in text and "threshold" not in text
        out = tmp_path / "out.txt"
        assert main([command[0], str(capture), *command[1:], "--format", "text", "-o", str(out)]) == 0
        assert out.read_text() == text


@pytest.mark.parametrize(
    ("limits", "status"),
    [
        (["no_tensor_cores"], 1),
        (["launch_bound"], 0),
        (["50"], 1),
        (["50%"], 1),
        (["90"], 0),
        (["launch_bound", "10"], 1),
        (["low_occupancy"], 0),
        (["no_such_rule"], 2),
        (["101"], 2),
    ],
)
def test_a_finding_is_an_exit_status_where_that_is_asked_for(limits, status, capture, capsys):
    asked = [part for limit in limits for part in ("--fail-on", limit)]
    assert main(["diagnose", str(capture), "--format", "json", *asked]) == status
    printed = capsys.readouterr()
    assert status == 2 or json.loads(printed.out)[0]["code"] == "no_tensor_cores"
    assert ("--fail-on: no_tensor_cores, 6" in printed.err) == (status == 1)


def test_a_page_replaces_a_page_and_says_so_and_no_other_file(capture, tmp_path, capsys, monkeypatch):
    page = tmp_path / "page.html"
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or True)
    assert main(["report", str(capture), "-o", str(page)]) == 0
    assert capsys.readouterr().err == f"kernel-tables: open file://{page}\n"
    assert main(["report", str(capture), "-o", str(page), "--open"]) == 0
    assert "the previous page was replaced" in capsys.readouterr().err
    assert opened == [f"file://{page}"]
    page.write_text("<html>mine</html>")
    assert main(["report", str(capture), "-o", str(page)]) == 2
    assert "not a page of kernel-tables, so it is not overwritten" in capsys.readouterr().err
    assert page.read_text() == "<html>mine</html>"


def test_a_misspelt_command_is_answered_with_the_one_that_was_meant(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["diagonse", "capture.sqlite"])
    assert ended.value.code == 2
    assert "did you mean diagnose?" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["xyz"])
    assert "did you mean" not in capsys.readouterr().err


def test_calls_of_a_program_on_the_cpu_are_operators_and_not_of_cuda(tmp_path, capsys):
    made = Synthetic().range("step", 0, 100).kernel("aten::mm", at=10, start=10, duration=50, device=-1)
    assert main(["host", str(made.write(tmp_path / "cpu.sqlite"))]) == 0
    table = capsys.readouterr().out
    assert ",operator," in table
    assert ",cuda," not in table


def test_a_recording_shows_itself_in_a_notebook_and_says_before_that_it_is_not_made(capture):
    recording = recorded("step", skip=2)
    assert repr(recording) == "<recorded 'step': ran 0 of 3 times>"
    assert recording._repr_html_() == "&lt;recorded &#x27;step&#x27;: ran 0 of 3 times&gt;"
    recording.capture = capture
    html = recording._repr_html_()
    assert "A step takes 3" in html
    assert "\n  forward" in html
    assert "Matrix multiplies in fp32, without tensor cores, take 200 µs" in html or "take 0.2 ms" in html
    assert "<script" not in html
