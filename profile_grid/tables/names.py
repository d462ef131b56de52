"""Names that are values of the tables. Imports nothing heavy."""

from cs336_model import ranges

MEASURE, STEP = ranges.MEASURE, ranges.STEP
FORWARD, LOSS, BACKWARD, OPTIMIZER = ranges.PHASES
RECOMPUTATION = ranges.RECOMPUTATION
MAIN_PHASES = ranges.PHASES
WHOLE_STEP = "step"  # phase of a row on all phases of a step
SLOWEST = -1  # rank of a row on the slowest rank of every step
WITHOUT_COMMUNICATION = "step without communication"  # phase of steps in which gradients are not reduced
ALL_PHASES = "all phases"
OUTSIDE = "(outside)"  # phase of what is launched in a step, but in none of its phases
NO_RANGE = "(no inner range)"
FORWARD_OTHERS = "forward without matrix multiplies"
PROCESS_STATISTICS = ["processes", "process_spread"]  # columns: their number, and the relative spread between them
