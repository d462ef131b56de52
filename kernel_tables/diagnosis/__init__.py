"""What a capture says of where time is lost, and what could be done about it: rules over unions of intervals."""
