"""Where time is lost in a capture, and what could be done about it: rules over unions of intervals."""
