"""From the results of runs to the tables of the study."""
