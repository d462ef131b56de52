"""(i) Where memory goes, and what fits."""
