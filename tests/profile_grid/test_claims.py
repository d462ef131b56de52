"""Sentences know their numbers, and no template has one of its own."""

import pytest

from profile_grid.tables.wording import Claim


def test_a_claim_is_its_sentence_and_keeps_its_rule_and_numbers():
    claim = Claim("A step takes {ms} ms in {runs}.", "counted", ms="8.2", runs=3)
    assert claim == "A step takes 8.2 ms in 3." and isinstance(claim, str)
    assert (claim.rule, claim.numbers) == ("counted", {"ms": "8.2", "runs": "3"})


@pytest.mark.parametrize(("template", "rule"), [("It takes 5 ms.", "measured"), ("It is fast.", "a feeling")])
def test_a_typed_number_and_an_unknown_rule_are_refused(template, rule):
    with pytest.raises(ValueError, match="no claim"):
        Claim(template, rule)


def test_a_number_that_a_sentence_needs_and_lacks_is_an_error():
    with pytest.raises(KeyError):
        Claim("A step takes {ms} ms.")
