"""Runs Snakemake for the tests: a line of JSON asks (folder, arguments, environment, scratch), a line answers.

Every request is served by a fork of this process, which has Snakemake imported already: a dry-run takes a third of the
time, and sees nothing of the one before. The answer holds the exit status, what was printed, the jobs in order, as
Snakemake's own log events name them (the rule, then its wildcards), and the input files of each.
"""

import gc
import json
import logging
import os
import sys
import traceback
from pathlib import Path

import jsonschema  # noqa: F401 - what every fork would import anew
import pandas  # noqa: F401
import smart_open  # noqa: F401
from snakemake import cli
from snakemake.logging import logger
from snakemake_interface_logger_plugins.common import LogEvent


class Jobs(logging.Filter):
    """Notes the jobs that pass by, and lets everything through."""

    def __init__(self):
        super().__init__()
        self.names = []
        self.inputs = {}

    def filter(self, record):
        if getattr(record, "event", None) == LogEvent.JOB_INFO:
            name = " ".join([record.rule_name, *record.wildcards.values()])
            self.names.append(name)
            self.inputs[name] = [str(file) for file in record.input or []]
        return True


def serve(request, answer):
    """Never returns: the fork ends here."""
    jobs, status = Jobs(), 70
    try:
        logger.addFilter(jobs)
        os.environ.update(request["environment"])
        os.chdir(request["folder"])
        cli.main(request["arguments"])
        status = 0
    except SystemExit as ending:
        status = ending.code or 0
    except BaseException:
        traceback.print_exc()
    answer.write_text(json.dumps({"status": status, "jobs": jobs.names, "inputs": jobs.inputs}))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def main():
    answers = os.fdopen(os.dup(1), "w")
    cli.get_argument_parser()  # imports the plugins
    gc.collect()
    gc.freeze()  # what is imported: a fork that searches it for garbage also copies it
    gc.set_threshold(100_000)  # a fork ends before its garbage is much
    for line in sys.stdin:
        request = json.loads(line)
        scratch = Path(request["scratch"])
        pid = os.fork()
        if pid == 0:
            output = os.open(scratch / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(output, 1)
            os.dup2(output, 2)
            serve(request, scratch / "answer")
        os.waitpid(pid, 0)
        answer = json.loads((scratch / "answer").read_text()) | {"output": (scratch / "output").read_text()}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
