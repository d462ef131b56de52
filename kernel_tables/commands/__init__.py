"""Commands, each in a module that has a SUMMARY, add_options(parser) and run(options), which returns the exit
status.

Their imports at the top run before any argument is read, so they are few.
"""
