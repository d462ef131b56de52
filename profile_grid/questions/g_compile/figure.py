"""Figure of (g): the speed-up of the compiled model in each phase."""

from profile_grid.figures.speed_ups import SpeedUps
from profile_grid.study.dimensions import COMPILE

SPEED_UPS = SpeedUps(COMPILE, "compile_times", base=COMPILE.name_of(COMPILE.default))
FIGURES = (SPEED_UPS.figure("compile", "Speed-up of the compiled model by phase"),)
