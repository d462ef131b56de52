"""Generates Markdown from the code: commands, rules, settings, and the complete examples of how to extend it."""

import argparse
import ast
import re
from pathlib import Path

from kernel_tables.__main__ import command_parser
from kernel_tables.markdown import MarkdownTable, code, escaped, pipe_table
from profile_grid.study.schema import config_schema

RULES = Path(__file__).parents[1] / "workflow" / "rules"
PATCHES = Path(__file__).parents[1] / "tests" / "patches"
LANGUAGES = {".py": "python", ".j2": "jinja", ".yaml": "yaml"}


def rules() -> str:
    """The rules and what they make, from the docstrings of their files: a line with two spaces after the first word."""
    rows = []
    for path in sorted(set(RULES.glob("*.smk")) - {RULES / "root.smk", RULES / "common.smk"}):
        before_rules = path.read_text().split('"""\n', 1)[0] + '"""'  # the rest of the file is not Python
        docstring = ast.get_docstring(ast.parse(before_rules), clean=False)
        rows += [(code(name), escaped(text)) for name, text in re.findall(r"^(\w+)  +(.*)$", docstring, re.MULTILINE)]
    return f"# Rules\n\n{_table(('rule', 'makes'), sorted(set(rows)))}\n"


def kernel_tables_commands() -> str:
    """Every command of `kernel-tables` with its arguments and options."""
    parser = command_parser()
    commands = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction)).choices
    sections = [_command_section(f"kernel-tables {name}", command) for name, command in sorted(commands.items())]
    return "\n\n".join(sections) + "\n"


def settings() -> str:
    """All keys of config.yaml, from its schema."""
    schema = config_schema()
    rows = [row for name, key_schema in schema["properties"].items() for row in _rows_of_key(name, key_schema)]
    return f"# Every key\n\n{_table(('key', 'meaning', 'values'), rows)}\n"


def _rows_of_key(name: str, schema: dict) -> list[tuple[str, str, str]]:
    """The rows of a key and of those below it. A key that only groups others, and cannot be a text, has no row."""
    inner_schemas = schema.get("properties", {})
    inner_rows = [row for key, inner in inner_schemas.items() for row in _rows_of_key(f"{name}.{key}", inner)]
    row = (code(name, in_table=True), _markdown(schema.get("description", "")), escaped(_values(schema)))
    only_groups = inner_rows and "then" not in schema
    return inner_rows if only_groups else [row, *inner_rows]


def _markdown(text: str) -> str:
    """The Markdown of a text in which only backticks are markup."""
    parts = re.split(r"`([^`]*)`", text)  # every second part is between backticks
    return "".join(code(part, in_table=True) if index % 2 else escaped(part) for index, part in enumerate(parts))


def _values(schema: dict) -> str:
    """The values of a key in words: "integer, 1 to 8"."""
    if "enum" in schema:
        return ", ".join(str(value) for value in schema["enum"])
    low, high = (schema.get(key, "") for key in ("minimum", "maximum"))
    # "integer", or ["integer", "null"], or the last name in a reference: "file name" of "#/$defs/file_name"
    kind = schema.get("type", schema.get("$ref", "").rpartition("/")[2].replace("_", " "))
    kind = " or ".join(kind) if isinstance(kind, list) else str(kind)
    return f"{kind}, {low} to {high}" if high != "" else kind


def _command_section(name: str, parser: argparse.ArgumentParser) -> str:
    rows = [_argument_row(parser, action) for action in parser._actions if action.help is not argparse.SUPPRESS]
    rows = [row for row in rows if row[0] != "`-h, --help`"]
    return f"# {name}\n\n{escaped(parser.description or '')}\n\n{_table(('argument', 'meaning'), rows)}"


def _argument_row(parser: argparse.ArgumentParser, action: argparse.Action) -> tuple[str, str]:
    """(an argument or option as on the command line, its help text)."""
    value = action.metavar or (f"{{{','.join(map(str, action.choices))}}}" if action.choices else action.dest.upper())
    names = ", ".join(action.option_strings)
    usage = names if action.nargs == 0 else f"{names} {value}".strip()
    text = (action.help or "") % {**vars(action), "prog": parser.prog}
    return code(usage, in_table=True), _markdown(text)


def _table(headings: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    return pipe_table(MarkdownTable(headings, tuple(rows), first_right=len(headings)))


def worked_example(name: str) -> str:
    """The example that tests/patches/NAME.patch adds: the text of new files, the difference of changed ones."""
    patch = (PATCHES / f"{name}.patch").read_text(encoding="utf-8")
    sections = map(_file_section, re.split(r"^(?=diff --git )", patch, flags=re.MULTILINE)[1:])
    return "\n\n".join(["# The complete example", *sections]) + "\n"


def _file_section(difference: str) -> str:
    path = re.match(r"diff --git a/(\S+)", difference)[1]
    if "\n@@ " not in difference:
        return f"## {path}\n\nAn empty file."
    lines = difference[difference.index("\n@@ ") + 1 :].splitlines()
    if "\n--- /dev/null\n" in difference:  # a new file: "@@ ... @@", then lines that begin with "+"
        lines, language = [line[1:] for line in lines[1:]], LANGUAGES[Path(path).suffix]
    else:
        language = "diff"
    return "\n".join([f"## {path}", "", f"```{language}", *lines, "```"])
