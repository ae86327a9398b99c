"""The page: which store keeps which rule, as tables in Markdown."""

from collections.abc import Sequence

import msgspec


class RuleTally(msgspec.Struct, frozen=True):
    """How many checks of a rule there were, and what those that the store broke found."""

    checks: int
    broken: list[str]


class StoreVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What the suite found in one store, and in which versions of what."""

    versions: str
    python: str
    aqueue: str
    tested: str
    abilities: list[str]
    checks: int
    rules: dict[str, RuleTally]

    @property
    def broken(self) -> list[str]:
        """The rules it breaks."""
        return [rule for rule, tally in self.rules.items() if tally.broken]


class Verdicts(msgspec.Struct, frozen=True):
    """All of it, by store."""

    stores: dict[str, StoreVerdict]


_HEAD = """\
# Compatibility

Which store keeps which rule of the [contract](contract.md): what the suite `aqueue.testing.contract` found on
each, in the versions named here. A capability changes what a check expects, never whether it runs; what
differs between the stores is in [the contract's table](contract.md#stores). This page is made by
`make compatibility`, from [compatibility.json](compatibility.json); [your own store](your-own-store.md) can
be proved in the same way.
"""

_ABILITIES = {
    "Clearable": "can be cleared",
    "KeepsFailed": "keeps failed jobs",
    "DeadLetters": "has a dead-letter queue",
    "Browsable": "shows what it holds",
    "KeepsNotes": "keeps notes",
    "Transactional": "takes your transaction",
}


def rendered(verdicts: Verdicts) -> str:
    """Return the page's Markdown."""
    stores = verdicts.stores
    tested = [
        (name, store.versions or "-", store.python, store.tested, store.checks, len(store.broken))
        for name, store in stores.items()
    ]
    abilities = [
        (words, *("yes" if ability in store.abilities else "no" for store in stores.values()))
        for ability, words in _ABILITIES.items()
    ]
    rules = [(rule, *(_cell(store, rule) for store in stores.values())) for rule in _all_rules(verdicts)]
    return "\n".join(
        [
            _HEAD,
            "## What was tested\n",
            _table(("store", "versions", "Python", "on", "checks", "rules broken"), tested),
            "## What each can do\n",
            _table(("", *stores), abilities),
            "## The rules\n",
            _table(("rule", *stores), rules),
            *_troubles(verdicts),
        ]
    )


def _all_rules(verdicts: Verdicts) -> list[str]:
    rules = {rule for store in verdicts.stores.values() for rule in store.rules}
    return sorted(rules, key=_family_and_number)


def _family_and_number(rule: str) -> tuple[str, int]:
    family, _, number = rule.partition("-")
    return family, int(number)


def _cell(store: StoreVerdict, rule: str) -> str:
    tally = store.rules.get(rule)
    if tally is None:
        return "untested"
    return f"**{len(tally.broken)} of {tally.checks} broken**" if tally.broken else "yes"


def _troubles(verdicts: Verdicts) -> list[str]:
    """Say what each broken rule looked like, check by check."""
    lines = [
        f"- {name}, {rule}: {' '.join(text.split())}"
        for name, store in verdicts.stores.items()
        for rule in store.broken
        for text in store.rules[rule].broken
    ]
    return ["## What is broken\n", *lines, ""] if lines else []


def _table(head: Sequence[object], rows: Sequence[Sequence[object]]) -> str:
    lines = [_row(head), "|---" * len(head) + "|", *map(_row, rows)]
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"
