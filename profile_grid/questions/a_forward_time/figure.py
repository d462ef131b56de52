"""The figures of (a)."""

from profile_grid.questions.a_forward_time.launch_bound import LAUNCH_BOUND
from profile_grid.questions.a_forward_time.phase_times import PHASE_TIMES

FIGURES = (PHASE_TIMES, LAUNCH_BOUND)
