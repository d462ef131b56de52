"""Commands, each in a module that has a SUMMARY, add_options(parser) and run(options), which gives the status.

What a module imports at its top is imported before any argument is read, so it is light.
"""
