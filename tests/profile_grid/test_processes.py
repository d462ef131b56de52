"""Programs run to their end, or to the time limit."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from profile_grid.freshness.environment import allowed_variables
from profile_grid.host.leases.lease_server import Leases
from profile_grid.host.processes.programs import (
    WORKFLOW_VARIABLE,
    failure_message,
    run_program,
    running_program,
)
from profile_grid.host.processes.supervisor import ENDED_STATES, process_stat

ROOT = Path(__file__).parents[2]


def run_shell(script, tmp_path, time_limit_s=20.0, environment=None):
    environment = allowed_variables(os.environ) if environment is None else environment
    log = tmp_path / "run.log"
    return run_program(["sh", "-c", script], environment=environment, log=log, time_limit_s=time_limit_s), log


def is_alive(pid):
    stat = process_stat(pid)
    return stat is not None and stat.state not in ENDED_STATES


def wait_until(condition, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def test_a_program_that_ends_well_succeeds_and_its_output_is_in_the_log(tmp_path):
    outcome, log = run_shell("echo out; echo err >&2", tmp_path)
    assert outcome.succeeded
    assert log.read_text() == "out\nerr\n"


def test_a_program_that_hangs_is_ended_at_the_limit_with_its_children(tmp_path):
    outcome, log = run_shell("sleep 60 & echo $!; sleep 60", tmp_path, time_limit_s=0.5)
    assert outcome.timed_out
    assert not outcome.succeeded
    child = int(log.read_text())
    assert wait_until(lambda: not is_alive(child))


def test_programs_run_beside_each_other_and_one_that_ended_in_time_did_so_whenever_it_is_asked_for(tmp_path):
    options = {"environment": allowed_variables(os.environ), "time_limit_s": 0.4}
    with (
        running_program(["sh", "-c", "sleep 60"], log=tmp_path / "a.log", **options) as hangs,
        running_program(["sh", "-c", "echo done"], log=tmp_path / "b.log", **options) as ends,
    ):
        assert hangs.wait().timed_out
        assert ends.wait().succeeded
    assert (tmp_path / "b.log").read_text() == "done\n"


def test_a_program_beside_a_block_is_ended_with_it(tmp_path):
    log, ended = tmp_path / "a.log", tmp_path / "pid"
    command = ["sh", "-c", f"echo $$ > {ended}; sleep 60"]
    running = running_program(command, environment=allowed_variables(os.environ), log=log, time_limit_s=60.0)
    with pytest.raises(KeyError), running:
        assert wait_until(lambda: ended.exists() and ended.read_text().strip())
        raise KeyError
    assert not is_alive(int(ended.read_text()))


class WaitsForEver(Leases):
    def waited_s(self):
        return time.monotonic()


def test_what_a_program_waits_for_its_lease_counts_neither_for_the_limit_nor_as_its_time(tmp_path):
    environment, log = allowed_variables(os.environ), tmp_path / "log"
    outcome = run_program(["sleep", "0.5"], environment=environment, log=log, time_limit_s=0.2, leases=WaitsForEver())
    assert outcome.succeeded
    assert outcome.seconds < 0.2


def test_children_that_outlive_a_program_are_ended_with_it(tmp_path):
    outcome, log = run_shell("sleep 60 & echo $!", tmp_path)
    assert outcome.succeeded
    assert wait_until(lambda: not is_alive(int(log.read_text())))


def test_a_daemon_in_a_session_of_its_own_is_ended_too(tmp_path):
    """As nsys's agent: started by a process that ends at once, so neither session nor parent leads to it."""
    daemon = "(setsid sh -c 'echo $$ >&2; exec sleep 60' &)"
    outcome, log = run_shell(f"{daemon}; sleep 60", tmp_path, time_limit_s=0.7)
    assert outcome.timed_out
    assert not is_alive(int(log.read_text()))


JOB = """
import sys
from pathlib import Path
import os
from profile_grid.freshness.environment import allowed_variables
from profile_grid.host.processes.programs import run_program
script = "echo $$ >&2; (setsid sh -c 'echo $$ >&2; exec sleep 60' &); sleep 60"
run_program(["sh", "-c", script], environment=allowed_variables(os.environ), log=Path(sys.argv[1]), time_limit_s=60)
"""


def started_pids(log):
    assert wait_until(lambda: log.exists() and len(log.read_text().split()) == 2)
    pids = [int(word) for word in log.read_text().split()]
    assert all(is_alive(pid) for pid in pids)
    return pids


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_program_and_its_daemons_die_with_the_job_however_it_ends(tmp_path, ending):
    log = tmp_path / "run.log"
    job = subprocess.Popen([sys.executable, "-c", JOB, str(log)], cwd=ROOT, stderr=subprocess.DEVNULL)
    pids = started_pids(log)
    os.kill(job.pid, ending)
    job.wait()
    assert wait_until(lambda: not any(is_alive(pid) for pid in pids))


def test_a_job_ends_itself_and_its_program_when_its_snakemake_is_killed(tmp_path):
    """Snakemake starts a shell, which starts the job: the killed one is the grandparent."""
    log, script = tmp_path / "run.log", tmp_path / "job.py"
    script.write_text(JOB)
    snakemake = subprocess.Popen(
        ["sh", "-c", f"{WORKFLOW_VARIABLE}=$$ sh -c '{sys.executable} {script} {log}; exit $?'; exit $?"],
        env=os.environ | {"PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    pids = started_pids(log)
    os.kill(snakemake.pid, signal.SIGKILL)
    _, said = snakemake.communicate()
    assert f"Snakemake (process {snakemake.pid}) is gone, so this measurement was ended" in said
    assert "snakemake --unlock && snakemake --cores 1 all" in said
    assert not any(is_alive(pid) for pid in pids)


def test_a_command_that_does_not_exist_is_said_in_the_log(tmp_path):
    log = tmp_path / "run.log"
    outcome = run_program(["no-such-program"], environment=allowed_variables(os.environ), log=log, time_limit_s=5)
    assert not outcome.succeeded
    assert log.read_text() == "no-such-program: No such file or directory\n"


def test_only_the_output_of_this_program_counts_and_not_what_the_log_held_before(tmp_path):
    (tmp_path / "run.log").write_text("from before\n")
    outcome, log = run_shell("echo now", tmp_path)
    assert outcome.output(log) == "now\n"


def test_a_failure_message_names_the_status_the_end_of_the_log_and_its_path(tmp_path):
    outcome, log = run_shell("seq 1 40; exit 3", tmp_path)
    message = failure_message("timing of small", outcome, log, 20.0)
    assert message.startswith("timing of small ended with exit status 3; the end of its log:\n  | 26\n")
    assert message.endswith(f"  | 40\ncomplete log: {log}")


def test_a_log_of_a_program_that_prints_without_end_keeps_both_its_ends(tmp_path):
    (tmp_path / "run.log").write_text("from before\n")
    outcome, log = run_shell("echo first; yes | head -c 20000000; echo last; exit 3", tmp_path)
    assert log.stat().st_size < 1_100_000
    assert log.read_text().startswith("from before\nfirst\ny\n")
    assert "\n... 19000011 bytes that were printed here are left out ...\n" in log.read_text()
    assert outcome.output(log).endswith("y\nlast\n")


def test_a_line_without_end_is_cut_in_a_message_and_keeps_both_its_ends(tmp_path):
    outcome, log = run_shell("printf first; head -c 300000 /dev/zero | tr '\\0' x; echo last; exit 3", tmp_path)
    message = failure_message("timing of small", outcome, log, 20.0)
    assert len(message) < 1000
    assert "  | firstxxx" in message
    assert "xxxlast\n" in message


def test_a_program_ended_by_a_signal_is_said_to_be(tmp_path):
    outcome, log = run_shell("kill -SEGV $$", tmp_path)
    assert "was killed by SIGSEGV" in failure_message("capture", outcome, log, 20.0)


@pytest.mark.parametrize("name", ["AWS_SECRET_ACCESS_KEY", "HOME", "SSH_AUTH_SOCK", "HF_TOKEN"])
def test_a_program_sees_no_variable_that_is_not_listed(tmp_path, name):
    source = {"PATH": os.environ["PATH"], name: "canary"}
    _, log = run_shell("env", tmp_path, environment=allowed_variables(source))
    assert "canary" not in log.read_text()


def test_a_name_that_config_adds_is_passed_on(tmp_path):
    source = {"PATH": os.environ["PATH"], "MY_SETTING": "seven"}
    _, log = run_shell("env", tmp_path, environment=allowed_variables(source, ["MY_SETTING"]))
    assert "MY_SETTING=seven" in log.read_text().splitlines()
