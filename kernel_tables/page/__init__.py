"""Parts of a page that shows where time went: one file, no network; for one capture, and for a study of many runs."""
