"""What a finding of the diagnosis says, in the table of runs and in that of its question."""

from profile_grid.study.described import columns

OF_A_FINDING = columns("""
    abstained | | whether the rule cannot tell from this capture; then `message` says why
    gain_ms | ms | at most gained in a step as it was captured
    gain_percent | % | the same, of the time from the first to the last activity of the GPU
    sure | | certain (counted), likely (profiling adds to it), possible (the program has to tell)
    message | | what was found, in a sentence
    advice | | what to do
""")
