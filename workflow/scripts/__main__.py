"""Runs a script: `python -m workflow.scripts NAME OPTIONS...`."""

import sys
from importlib import import_module

from workflow.command import run_command

if __name__ == "__main__":
    run_command(import_module(f"workflow.scripts.{sys.argv.pop(1)}").main)
