"""The doctor as people call it, and its place before the grid."""

import os
import sys


def test_the_machine_is_looked_at_among_the_first_jobs(first_run):
    folder, run = first_run  # on three cores
    assert run.jobs.index("machine") < 3
    assert len((folder / "results/machine.txt").read_text().splitlines()) == 10


def test_the_doctor_prints_ten_lines_each_time_it_is_asked(project, snakemake):
    for _ in range(2):
        run = snakemake(project, "doctor")
        assert run.status == 0, run.output
        assert run.jobs == ["doctor"]
        assert len([line for line in run.output.splitlines() if line.startswith(("ok  ", "FAILS"))]) == 10
        assert "5 of 5 measurements finished; nothing is left to measure" in run.output


def test_nsys_that_is_asked_for_and_not_there_fails_with_the_next_step(project, snakemake, tmp_path):
    (tmp_path / "bin").mkdir()
    for name in ("bash", "tee", "env"):
        os.symlink(f"/usr/bin/{name}", tmp_path / "bin" / name)
    config = project / "config.yaml"
    config.write_text(config.read_text().replace("backend: auto", "backend: nsys"))
    run = snakemake(project, "doctor", PATH=f"{os.path.dirname(sys.executable)}:{tmp_path / 'bin'}")
    assert run.status != 0
    assert (
        "the grid would fail on this machine: captures: capture.backend is nsys and there is no nsys on PATH"
        in run.output
    )
    assert "install Nsight Systems" in run.output
