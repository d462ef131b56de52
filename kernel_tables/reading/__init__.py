"""From a file to columns: reports, exports and their schemas; what of a capture may be published."""
