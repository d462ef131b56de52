"""Figure of (f): the speed-up of each phase in lower precisions."""

from profile_grid.figures.speed_ups import SpeedUps
from profile_grid.study.dimensions import PRECISION

SPEED_UPS = SpeedUps(PRECISION, "precision_times", base="fp32")
FIGURES = (SPEED_UPS.figure("precision", "Speed-up over fp32 by phase"),)
