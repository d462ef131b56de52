"""A rank without PyTorch in the place of the measured program: it asks for its GPUs, meets the other, and ends."""

import argparse
import json
import os
import time
from pathlib import Path

from cs336_model.program.lease import give_back_lease, take_lease
from cs336_model.program.parallel.launch import RANK, STORE
from kernel_tables.whole_files import written_whole

WORKS_S = 0.1
RESULT = {
    "status": "complete", "reason": None, "rank_device": None, "step_seconds": [1.0], "phase_seconds": {},
    "step_no_sync_seconds": [1.0], "memory": {"peak_allocated_bytes": None}, "machine": None,
}  # fmt: skip

parser = argparse.ArgumentParser()
parser.add_argument("--output", type=Path)
parser.add_argument("--lease", type=Path)
options, _ = parser.parse_known_args()
take_lease(options.lease)
time.sleep(WORKS_S)
Path(os.environ[STORE]).with_name(f"here{os.environ[RANK]}").touch()
while len(list(Path(os.environ[STORE]).parent.glob("here*"))) < 2:  # for ever where the other one is gone, as in NCCL
    time.sleep(0.01)
with written_whole(options.output) as partial:
    partial.write_text(json.dumps(RESULT | {"pid": os.getpid()}))
give_back_lease()
time.sleep(WORKS_S)  # as long as a profiler writes
