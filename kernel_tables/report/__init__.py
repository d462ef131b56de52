"""The page of one capture: kernel-tables report CAPTURE."""
