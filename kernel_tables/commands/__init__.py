"""Commands. A module that is a command has SUMMARY, add_options(parser) and run(options), which returns the exit
status; the other modules are what commands share. Imports at the top of these modules run before any argument is read,
so they are few.
"""
