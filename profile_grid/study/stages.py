"""The stages of a run in their order, each declared in profile_grid/stages/NAME/stage.py. Imports nothing heavy.

Rules, progress, estimates, merge, cost, sentences about missing results and the schema follow from this list. A
stage writes results/runs/RUN/NAME.json (profile_grid.results.results) and the files that it declares.
"""

from profile_grid.stages.capture.stage import CAPTURE
from profile_grid.stages.counters.stage import COUNTERS
from profile_grid.stages.energy.stage import ENERGY
from profile_grid.stages.memory.stage import MEMORY
from profile_grid.stages.operator.stage import OPERATOR
from profile_grid.stages.timing.stage import TIMING

NOT_ASKED = "not_asked"  # the status of a stage that was not requested for a run

STAGES = (TIMING, CAPTURE, MEMORY, ENERGY, COUNTERS, OPERATOR)
STAGE_BY_NAME = {stage.name: stage for stage in STAGES}
ON_REQUEST = tuple(stage.name for stage in STAGES if not stage.of_every_run)
