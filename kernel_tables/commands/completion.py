"""Options that print the completion for a shell (eval "$(kernel-tables --print-completion bash)") and a JSON schema."""

import argparse
from collections.abc import Iterator
from pathlib import Path

SHELLS = ("bash", "zsh")


class PrintCompletion(argparse.Action):
    """Prints the completion script of a shell, and exits. shtab, which writes it, is imported only then."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: object, shell: str, option: str | None = None):
        try:
            import shtab
        except ModuleNotFoundError:
            parser.error("completion needs the package shtab, which is not installed: pip install shtab")
        for action in _actions(parser):
            if action.type is Path:
                action.complete = shtab.FILE
        parser.prog = "kernel-tables"
        print(shtab.complete(parser, shell))
        parser.exit()


class PrintJsonSchema(argparse.Action):
    """Prints the JSON schema of the tables of all commands, and exits."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: object, values: object, option: str | None = None):
        import json

        from kernel_tables.columns import json_schema

        print(json.dumps(json_schema(), ensure_ascii=False, indent=1))
        parser.exit()


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """The arguments of a command and of its subcommands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
