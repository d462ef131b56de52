"""Names that occur as values of the tables. Imports nothing heavy."""

from cs336_model import ranges

MEASURE, STEP = ranges.MEASURE, ranges.STEP
FORWARD, LOSS, BACKWARD, OPTIMIZER = ranges.PHASES
RECOMPUTATION = ranges.RECOMPUTATION
MAIN_PHASES = ranges.PHASES
WHOLE_STEP = "step"  # the phase of a row that is about all phases of a step
SLOWEST = -1  # as rank: the slowest of all ranks at every step
WITHOUT_COMMUNICATION = "step without communication"  # as phase: gradients are not reduced
ALL_PHASES = "all phases"
OUTSIDE = "(outside)"  # the phase of what was launched in a step and in none of its phases
NO_RANGE = "(no inner range)"
FORWARD_OTHERS = "forward without matrix multiplies"
PROCESS_STATISTICS = ["processes", "process_spread"]  # columns: how many timed it, and the relative spread between them
