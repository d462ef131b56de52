"""What a finding of the diagnosis says, in the table of runs and in that of its question."""

from profile_grid.study.table_spec import columns

GAIN_OF_A_FINDING = columns("""
    abstained | bool | | whether the rule cannot tell from this capture; then `message` says why
    gain_ms | float | ms | at most gained in a step as it was captured
    gain_percent | float | % | the same, of the time from the first to the last activity of the GPU
""")
WORDS_OF_A_FINDING = columns("""
    sure | text | | certain (counted), likely (profiling adds to it), possible (the program has to tell)
    message | text | | what was found, in a sentence
    advice | text | | what to do
""")
OF_A_FINDING = columns(GAIN_OF_A_FINDING, WORDS_OF_A_FINDING)
