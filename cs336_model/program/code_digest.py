"""The digest of the code of a file: comments, docstrings and positions do not count. Imports no torch."""

import ast
import hashlib
import warnings
from functools import cache

DIGITS = 16  # of 64; two different inputs have the same 16 by chance once in 10^19 pairs
_WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_IGNORED_FIELDS = {"ctx", "kind", "type_comment", "type_ignores"}
_NODE_END = ")"


def code_digest(content: bytes) -> str:
    """16 hex digits that change with the syntax tree of a Python file, except its docstrings. They are the same on
    every version of Python. For other files, they change with every byte."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escape sequences: reported when the file is compiled
            text = "\n".join(_tokens(ast.parse(content)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the ways in which ast.parse refuses bytes
        return bytes_digest(content)
    return bytes_digest(text.encode(errors="surrogatepass"))


def bytes_digest(content: bytes) -> str:
    """16 hex digits that change with every byte."""
    return hashlib.sha256(content).hexdigest()[:DIGITS]


def _tokens(tree: ast.Module) -> list[str]:
    """The tree as texts, each node after its parent. Not recursive, because a long sum is a deep tree."""
    tokens: list[str] = []
    stack: list = [tree]
    while stack:
        item = stack.pop()
        if isinstance(item, ast.AST):
            kind = type(item)
            tokens.append(kind.__name__)
            if isinstance(item, ast.Constant):
                tokens.append(f"{type(item.value).__name__} {item.value!r}")
                continue
            stack.append(_NODE_END)
            for name in _fields(kind):
                value = getattr(item, name, None)
                if value is None or value == []:
                    continue  # a field that a later Python added is empty in the code of an earlier one
                if name == "body" and isinstance(item, _WITH_DOCSTRING):
                    value = _without_docstring(value)
                elif kind is ast.JoinedStr:
                    value = _with_merged_texts(value)
                stack += (value, name)
        elif isinstance(item, list):
            tokens.append(f"[{len(item)}")
            stack += reversed(item)
        else:
            tokens.append(item if isinstance(item, str) else repr(item))
    return tokens


@cache
def _fields(kind: type[ast.AST]) -> tuple[str, ...]:
    """The fields of a kind of node that are digested, in an order that is the same on every version of Python."""
    return tuple(sorted(set(kind._fields) - _IGNORED_FIELDS))


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0]
    is_docstring = (
        isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    )
    return body[1:] if is_docstring else body


def _with_merged_texts(values: list[ast.expr]) -> list[ast.expr]:
    """The parts of an f-string, with adjacent texts as one: versions of Python split them differently."""
    parts: list[ast.expr] = []
    for value in values:
        is_text = isinstance(value, ast.Constant)
        if is_text and parts and isinstance(parts[-1], ast.Constant):
            parts[-1] = ast.Constant(parts[-1].value + value.value)
        elif not is_text or value.value:
            parts.append(value)
    return parts
