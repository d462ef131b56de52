"""Commands. A module that is a command has a SUMMARY, add_options(parser) and run(options), which returns the exit
status; the others are what commands share.

Their imports at the top run before any argument is read, so they are few.
"""
