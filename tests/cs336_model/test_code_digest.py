"""The digest of what a file of Python does."""

import ast

import pytest

from cs336_model.program.code_digest import bytes_digest, code_digest

CODE = b'''"""Says what the module is."""
import math

class Layer:
    """Says what a layer is."""

    def width(self, *, of: int = 3) -> str:
        "says what it returns"
        return f"{of:>{math.pi}} {of!r} wide" "!"
'''


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"import math\n", b"# a comment\n\n\nimport math  # another\n"),
        (b"Says what a layer is.", b"Another docstring."),
        (b'    """Says what a layer is."""\n\n', b""),
        (b'"""Says what the module is."""\n', b""),
        (b"import math", b"import (\n    math)".replace(b"(\n    math)", b"\\\n  math")),
        (b'wide" "!"', b'wide!"'),
    ],
)
def test_a_comment_a_docstring_and_the_layout_do_not_count(old, new):
    assert old in CODE
    assert code_digest(CODE.replace(old, new)) == code_digest(CODE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"= 3", b"= 4"),
        (b"= 3", b"= 3.0"),
        (b"= 3", b'= "3"'),
        (b"= 3", b"= b'3'"),
        (b"= 3", b"= None"),
        (b" = 3", b""),
        (b"!r}", b"!s}"),
        (b"wide", b"broad"),
        (b"import math", b"import math as math"),
        (b"*, of", b"of"),
        (b"def width", b"async def width"),
        (b"-> str", b""),
        (b"    def width", b'    text = """x"""\n    def width'),
    ],
)
def test_whatever_may_change_what_a_file_does_counts(old, new):
    assert old in CODE
    assert code_digest(CODE.replace(old, new)) != code_digest(CODE)


@pytest.mark.parametrize(
    ("one", "other"), [("f(a)(b)", "f(a, b)"), ("[a], b", "[a, b]"), ("if a:\n b\nc", "if a:\n b\n c")]
)
def test_the_shape_of_the_tree_counts(one, other):
    assert code_digest(one.encode()) != code_digest(other.encode())


def test_a_field_that_another_python_has_and_that_is_empty_changes_nothing(monkeypatch):
    before = code_digest(CODE)
    parse = ast.parse

    def later_python(content):
        tree = parse(content)
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                node._fields = (*node._fields, "later", "type_params")
                node.later, node.type_params = None, []
        return tree

    monkeypatch.setattr(ast, "parse", later_python)
    assert code_digest(CODE) == before


def test_the_digest_is_this_one_on_every_python():
    assert code_digest(CODE) == "b033444c4c6ac805"


@pytest.mark.parametrize("content", [b"no python (", b"a\0b", b"\xff\xfe", b"\x7fELF", b"def f(:"])
def test_of_what_is_not_python_every_byte_counts(content):
    assert code_digest(content) == bytes_digest(content)


def test_a_deep_tree_and_a_long_number_have_a_digest():
    deep = b"+".join([b"1"] * 900)
    assert code_digest(b"a = 0x" + b"f" * 9000) != code_digest(b"a = 0x" + b"f" * 8999)
    assert code_digest(deep) != code_digest(deep + b"+2")


def test_an_invalid_escape_sequence_is_not_warned_of(recwarn):
    code_digest(rb'a = "\d"')
    assert not recwarn.list
