"""Stands for the measured program: takes its arguments, and ends as the file `program` in the working folder wants."""

import argparse
import fcntl
import json
import os
import resource
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

parser = argparse.ArgumentParser()
for option in ("--spec", "--output", "--locks", "--profiler", "--capture", "--rank-command"):
    parser.add_argument(option)
options = parser.parse_args()
started = Path(options.output).with_name("started")
spec = json.loads(options.spec)
manner = Path("program").read_text() if Path("program").exists() else "ends well"
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.getrlimit(resource.RLIMIT_FSIZE)[1],) * 2)
with Path("pids").open("a") as pids:
    print(os.getpid(), file=pids)
print("fake program:", manner, file=sys.stderr, flush=True)
with open(Path(options.locks, "host"), "a") as lock:  # raises if the process that started this one holds it
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
is_waiting = manner == "waits before and after its device"
if is_waiting:
    time.sleep(0.5)
started.touch()
if is_waiting:
    started.unlink()
    time.sleep(0.5)
if manner == "crashes":
    raise RuntimeError("a defect of the model")
if manner == "hangs":
    time.sleep(120)
if manner == "is edited":
    Path("code").write_text("another")
if manner == "leaves a child":  # in a session of its own
    left = subprocess.Popen(["sleep", "120"], start_new_session=True)
    with Path("pids").open("a") as pids:
        print(left.pid, file=pids)
if options.rank_command:
    for suffix in [f"_rank{rank}" if rank else "" for rank in range(spec["gpus"])]:
        words = [word.replace("{rank}", suffix) for word in json.loads(options.rank_command)]
        subprocess.run([*words, "true"], check=True)
elif options.capture:
    with closing(sqlite3.connect(options.capture)) as database:
        database.execute("CREATE TABLE NVTX_EVENTS (start INTEGER)")
Path("environment").write_text(json.dumps(dict(os.environ)))
status = "out_of_memory" if manner == "runs out of memory" else "complete"
Path(options.output).write_text(json.dumps({"status": status}))
