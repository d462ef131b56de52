"""Stands for the measured program: takes its arguments, says it ran on a GPU, and ends as the file `program` wants.

A file `program-MODEL` is for the runs of one model alone.
"""

import argparse
import json
import os
import signal
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path

parser = argparse.ArgumentParser()
for option in ("--spec", "--output", "--profiler", "--capture", "--time-limit-s"):
    parser.add_argument(option)
options = parser.parse_args()
spec = json.loads(options.spec)
manners = [
    path for name in (f"program-{spec.get('dimensions', {}).get('model')}", "program") if (path := Path(name)).exists()
]
manner = manners[0].read_text() if manners else "ends well"
with Path("runs").open("a") as runs:
    print(options.profiler, file=runs)
print("fake program:", manner, file=sys.stderr, flush=True)
if manner == "crashes":
    raise RuntimeError("a defect of the model")
if manner == "is killed":
    os.kill(os.getpid(), signal.SIGKILL)
if manner == "is late":
    late = {"status": "overdue", "reason": "measure step 2: backward", "spec": spec, "machine": None}
    Path(options.output).write_text(json.dumps(late))
if manner in ("hangs", "is late"):
    Path("pid").write_text(str(os.getpid()))
    time.sleep(120)
status = "out_of_memory" if manner == "runs out of memory" else "complete"
result = {"status": status, "reason": None, "spec": spec, "machine": {"device": "cuda"}}
if manner == "shows its environment":
    result["environment"] = dict(os.environ)
if options.capture:
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("CREATE TABLE NVTX_EVENTS (start INTEGER)")
        Path(options.capture).write_bytes(database.serialize())
Path(options.output).write_text(json.dumps(result))
