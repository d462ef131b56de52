"""Sentences as claims: with the numbers in them and the rule by which they hold."""

import re

RULES = {
    "measured": "numbers of the tables: of one run, or the least and the most of several",
    "counted": "how many runs of how many",
    "difference": "the interval between processes excludes that nothing differs (profile_grid/tables/evidence.py)",
    "untold": "no interval between processes excludes that nothing differs; and how many processes would do",
    "predicted": "follows from shapes, rules or the data sheet, and was not measured",
    "missing": "what the tables lack, and why",
}
VERDICTS = ("difference", "untold")  # rules of sentences that rest on the differences between processes
FIELD = re.compile(r"\{[^{}]*\}")
WORD = re.compile(r"\S*\w\S*")
MOST_WORDS, MOST_BULLETS = 30, 5  # of a lead, and below it


class Claim(str):
    """A sentence in Markdown. `template` has no digit: all numbers, and names with digits, are among `numbers`."""

    rule: str
    numbers: dict[str, str]

    def __new__(cls, template: str, rule: str = "measured", **numbers: object) -> "Claim":
        if rule not in RULES or re.search(r"\d", FIELD.sub("", template)):
            raise ValueError(f"no claim: {template!r} by the rule {rule!r} (a typed number, or an unknown rule)")
        claim = super().__new__(cls, template.format(**numbers))
        claim.rule, claim.numbers = rule, {name: str(value) for name, value in numbers.items()}
        return claim


def words(text: str) -> int:
    """The number of words of a sentence; a sign such as "%" or "±" is no word."""
    return len(WORD.findall(text))
