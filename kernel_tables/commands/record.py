"""The command that runs a program and records it: kernel-tables record -- python train.py."""

from __future__ import annotations

import argparse

from kernel_recorder.options import SUMMARY, add_options

__all__ = ["SUMMARY", "add_options", "run"]


def run(options: argparse.Namespace) -> int:
    from kernel_recorder.command import record

    return record(options)
