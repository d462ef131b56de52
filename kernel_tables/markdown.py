"""Markdown from untrusted text, such as names of kernels and models, and its tables. Imports nothing heavy."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

ALWAYS_SPECIAL = r"[\\`*\[\]<>|$~&]"
MENTION = r"@(?=\w)"
UNDERSCORE_AT_AN_EDGE = r"(?<![A-Za-z0-9_])_+|_+(?![A-Za-z0-9_])"
COLON_OF_A_LINK_OR_EMOJI = r":(?=//)|(?<!\d):(?=[\w+-]+:)|:(?=[a-z+_-][\w+-]*:)"
START_OF_A_BLOCK = r"^[#+=-]"
NUMBER_OF_A_LIST = re.compile(r"^(\d+)([.)])(?=\s|$)")
SPECIAL = re.compile(
    "|".join((ALWAYS_SPECIAL, MENTION, UNDERSCORE_AT_AN_EDGE, COLON_OF_A_LINK_OR_EMOJI, START_OF_A_BLOCK))
)
UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


@dataclass(frozen=True)
class MarkdownTable:
    """A table whose cells are Markdown already; columns from `first_right` on are right-aligned."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    first_right: int = 2


def escaped(text: str) -> str:
    """The text as Markdown that renders as the text itself, also in a table."""
    line = SPECIAL.sub(lambda match: "".join("\\" + character for character in match[0]), _one_line(text))
    return NUMBER_OF_A_LIST.sub(r"\1\\\2", line)


def with_code(text: str) -> str:
    """The text as Markdown, with what is between backticks as code. If backticks do not pair, all is only escaped."""
    parts = text.split("`")
    if len(parts) % 2 == 0 or not all(word.strip() for word in parts[1::2]):
        return escaped(text)
    return "".join(code(part) if number % 2 else escaped(part) for number, part in enumerate(parts))


def code(text: str, in_table: bool = False) -> str:
    """The text as a code span, which shows every character; with `in_table`, pipes are escaped. "(no name)" if it is
    blank."""
    line = _one_line(text)
    if not line.strip():
        return "(no name)"
    longest = max((len(run) for run in re.findall(r"`+", line)), default=0)
    fence = "`" * (longest + 1)
    padding = " " if line[0] in "` " or line[-1] in "` " else ""
    span = f"{fence}{padding}{line}{padding}{fence}"
    return span.replace("|", "\\|") if in_table else span


def pipe_table(table: MarkdownTable) -> str:
    """The table as a Markdown pipe table whose source is aligned, too."""
    widths = [max(3, *map(len, column)) for column in zip(table.headings, *table.rows, strict=True)]
    left_widths, right_widths = widths[: table.first_right], widths[table.first_right :]
    dashes = [":" + "-" * (width - 1) for width in left_widths] + ["-" * (width - 1) + ":" for width in right_widths]

    def padded(row: Sequence[str]) -> str:
        left = map(str.ljust, row, left_widths)
        return _line([*left, *map(str.rjust, row[table.first_right :], right_widths)])

    return "\n".join(map(padded, (table.headings, dashes, *table.rows)))


def compact_table(headings: Sequence[str], rows: Iterable[Sequence[str]], right_indices: Collection[int] = ()) -> str:
    """Cells of Markdown as a pipe table whose source is not aligned, with a newline at the end. The columns with
    `right_indices` are right-aligned."""
    dashes = ["---:" if index in right_indices else "---" for index in range(len(headings))]
    return "".join(f"{_line(cells)}\n" for cells in (headings, dashes, *rows))


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _one_line(text: str) -> str:
    return UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", re.sub(r"[\r\n\t]+", " ", str(text)))
