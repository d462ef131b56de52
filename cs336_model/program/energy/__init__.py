"""The energy that a device takes, by its own counter: where that is, how often it ticks, and windows read by it."""
