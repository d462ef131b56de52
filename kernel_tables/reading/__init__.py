"""From a file to columns: reports, exports and their schemas; publishable copies of captures."""
