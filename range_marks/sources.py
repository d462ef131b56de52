"""The part of the model around a line of source: the blocks `with span(...)` that enclose it.

A compiler drops ranges from the graph that it traces, or breaks it at them; but it notes of every operation the lines
that called it, one inside the other. So the parts that those lines stand in are known without running anything.
"""

import ast
import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

FRAME = re.compile(r'File "([^"]+)", line (\d+), in ')

Block = tuple[int, int, str]  # first and last line, and the name of the part


class WrittenParts:
    """The parts that modules of this process open in their sources, by calls of `span` with a constant or its name."""

    def __init__(self, span: Callable[[str], Any]) -> None:
        self._span = span
        self._blocks = cache(self._blocks_of)

    def innermost(self, stack_trace: str) -> str | None:
        """The innermost part that a stack of calls, outermost first as Python writes it, is in."""
        for path, line in reversed(FRAME.findall(stack_trace)):
            blocks = [name for first, last, name in self._blocks(path) if first <= int(line) <= last]
            if blocks:
                return blocks[-1]
        return None

    def _blocks_of(self, path: str) -> list[Block]:
        """The blocks of a file, outer ones first; none of a file that is no module of this process."""
        modules = list(sys.modules.values())
        module = next((module for module in modules if getattr(module, "__file__", None) == path), None)
        if module is None:
            return []
        blocks = [
            (node.body[0].lineno, node.end_lineno, name)
            for node in ast.walk(ast.parse(Path(path).read_text()))
            if isinstance(node, ast.With)
            for item in node.items
            if (name := self._opened(item.context_expr, module)) is not None
        ]
        return sorted(blocks, key=lambda block: (block[0], -block[1]))

    def _opened(self, expression: ast.expr, module: ModuleType) -> str | None:
        """The name of the part that an expression opens, if it is a call of `span`."""
        if isinstance(expression, ast.Call) and expression.args and _value(expression.func, module) is self._span:
            name = _value(expression.args[0], module)
            return name if isinstance(name, str) else None
        return None


def _value(expression: ast.expr, module: ModuleType) -> Any:
    """What a constant, a global name or an attribute of one means; None for everything else."""
    if isinstance(expression, ast.Constant):
        return expression.value
    if isinstance(expression, ast.Name):
        return vars(module).get(expression.id)
    if isinstance(expression, ast.Attribute):
        return getattr(_value(expression.value, module), expression.attr, None)
    return None
