"""Paths of range names as texts: no two have the same, whatever the names hold."""

from itertools import product

from kernel_tables.attribution.path_text import as_path, innermost, names_in


def test_a_path_is_its_names_with_a_sign_between_that_no_name_has_alone():
    assert as_path(["step", "forward"]) == "step > forward"
    assert as_path(["vector<int> f", "a->b"]) == "vector<int> f > a->b"
    assert as_path(["step", "a > b"]) == r"step > a \> b"
    assert (names_in(""), innermost("")) == ([], "")


def test_any_names_come_back_from_their_path():
    names = ["".join(characters) for length in (1, 2, 3) for characters in product("a >\\", repeat=length)]
    names.append("a > b > c")
    for pair in product(names, repeat=2):
        assert names_in(as_path(pair)) == list(pair)
        assert innermost(as_path(pair)) == pair[1]
