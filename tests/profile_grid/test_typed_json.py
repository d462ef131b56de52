from dataclasses import dataclass

import pytest

from profile_grid.typed_json import Mismatch, parse_as


@dataclass(frozen=True)
class Sized:
    size: int | str | None
    share: float | list[int]


@pytest.mark.parametrize(("size", "share"), [(4, 0.5), ("4-2", [1, 2]), (None, 1)])
def test_a_value_may_have_any_type_of_a_union(size, share):
    assert parse_as(Sized, {"size": size, "share": share}) == Sized(size, share)


@pytest.mark.parametrize(
    ("size", "share", "message"),
    [
        (0.5, 1, "size is 0.5, not a whole number; size is 0.5, not text"),
        (True, 1, "size is True, not a whole number; size is True, not text"),
        (4, None, "share is None, not a number; share is None, not a list"),
        (4, ["a"], r"share is \['a'\], not a number; share\[0\] is 'a', not a whole number"),
    ],
)
def test_a_value_of_no_type_of_a_union_is_named_with_each(size, share, message):
    with pytest.raises(Mismatch, match=f"^{message}$"):
        parse_as(Sized, {"size": size, "share": share})
