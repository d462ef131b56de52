"""A Slurm of one node on this machine, for a test: its own munge and daemons, in a folder, with made-up GPUs."""

import os
import shutil
import socket
import subprocess
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

CONFIGURATION = Path("/etc/slurm/slurm.conf")  # jobs find it nowhere else: the executor hides their environment
PROGRAMS = ("munged", "mungekey", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol")
SLURM = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/controller
SlurmdSpoolDir={folder}/node
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
KillWait=2
SchedulerParameters=sched_interval=2
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=16 RealMemory={memory} Gres=gpu:made_up:2
PartitionName=main Nodes={host} Default=YES State=UP
"""
GPUS = "NodeName={host} Name=gpu Type=made_up File={folder}/gpu[0-1]\n"


def why_not() -> str | None:
    """Why no Slurm can be started here; None where one can."""
    if missing := [name for name in PROGRAMS if shutil.which(name, path=search_path()) is None]:
        return f"{missing[0]} is not installed"
    if os.geteuid() != 0:
        return "only root can start a Slurm"
    return f"{CONFIGURATION} is there: this machine has a Slurm of its own" if CONFIGURATION.exists() else None


def search_path() -> str:
    """PATH with the folder of daemons."""
    return f"{os.environ['PATH']}{os.pathsep}/usr/sbin"


@contextmanager
def one_node_slurm(folder: Path):
    """Runs it for the time of a with block."""
    host = socket.gethostname().partition(".")[0]
    for name in ("controller", "node"):
        (folder / name).mkdir()
    for name in ("gpu0", "gpu1"):
        (folder / name).touch()
    (folder / "slurm.conf").write_text(
        SLURM.format(
            folder=folder, host=host, controller_port=_free_port(), node_port=_free_port(),
            memory=16000,
        )
    )  # fmt: skip
    (folder / "gres.conf").write_text(GPUS.format(folder=folder, host=host))
    with ExitStack() as undo:
        CONFIGURATION.parent.mkdir(exist_ok=True)
        for name in ("slurm.conf", "gres.conf"):
            link = CONFIGURATION.with_name(name)
            link.symlink_to(folder / name)
            undo.callback(link.unlink)
        subprocess.run(["mungekey", "-c", "-k", folder / "munge.key"], check=True, env={"PATH": search_path()})
        for command in (_munged(folder), ["slurmctld", "-D"], ["slurmd", "-D"]):
            undo.callback(_stop, _started(command, folder))
        _until_the_node_is_idle()
        yield


def _munged(folder: Path) -> list[str]:
    files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    options = [f"--{option}={folder}/munge.{name}" for option, name in files.items()]
    return ["munged", "--foreground", "--force", *options]


def _started(command: list[str], folder: Path) -> subprocess.Popen:
    with (folder / f"{command[0]}.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "PATH": search_path()})
    time.sleep(0.5)
    assert process.poll() is None, (folder / f"{command[0]}.log").read_text()
    return process


def _stop(process: subprocess.Popen) -> None:
    process.terminate()
    process.wait(timeout=20)


def _until_the_node_is_idle() -> None:
    deadline = time.monotonic() + 30
    while "idle" not in subprocess.run(["sinfo", "-h", "-o", "%t"], capture_output=True, text=True).stdout:
        assert time.monotonic() < deadline, "the node of the test's Slurm does not become idle"
        time.sleep(0.2)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
