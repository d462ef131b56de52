"""Runs a module as `python -m MODULE ARGUMENTS...` does, and notes the code that it loads.

python -m cs336_model.program cs336_model.program.benchmark --spec '{...}' --output result.json
"""

import sys

from cs336_model.program.loading import keep_account


def main() -> None:
    """Runs the module that the command line names."""
    keep_account()
    import runpy  # after: what it imports is noted, too

    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
