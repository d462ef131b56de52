"""The stage whose capture starts before the first step."""

from profile_grid.stages.capture.stage import CAPTURE
from profile_grid.study.stage import Setting, Stage, TablesOfARun

COLD_START = Stage(
    name="cold_start",
    meaning="the process whose very first step is captured",
    files=("cold_start.sqlite",),
    attempts=CAPTURE.attempts,
    sources=(*CAPTURE.sources, CAPTURE.module_path("measure")),
    disk_bytes=CAPTURE.disk_bytes,
    disk_bytes_per_layer_and_step=CAPTURE.disk_bytes_per_layer_and_step,
    settings=CAPTURE.settings | {"warmup_steps": Setting({"enum": [0]}, default=0, of_program=True)},
    tables_of_a_run=TablesOfARun(names=("first_step",), status_file="cold_start_status.json"),
    of_every_run=False,
)
