"""docs/compatibility.md is what its generator makes of the verdicts, which leave no store and no rule out."""

import msgspec
import pytest
from backends import STORES
from compatibility import PAGE, VERDICTS
from compatibility.page import RuleTally, StoreVerdict, Verdicts, rendered
from compatibility.versions import _VERSIONS

from aqueue.testing.contract import all_checks

pytestmark = pytest.mark.rule("CONF-1")

REMAKE = "run `make compatibility`"


@pytest.fixture(scope="module")
def verdicts() -> Verdicts:
    return msgspec.json.decode(VERDICTS.read_bytes(), type=Verdicts)


def test_the_page_is_made_of_the_verdicts(verdicts: Verdicts) -> None:
    assert PAGE.read_text(encoding="utf-8") == rendered(verdicts), REMAKE


def test_every_store_has_its_verdict(verdicts: Verdicts) -> None:
    names = [store.name for store in STORES]

    assert list(verdicts.stores) == names, REMAKE
    assert set(_VERSIONS) == set(names), "say in compatibility/versions.py what versions it has"


def test_every_rule_of_the_suite_was_tried_on_every_store(verdicts: Verdicts) -> None:
    rules = {rule for check in all_checks() for rule in check.rules}

    assert {name: set(store.rules) ^ rules for name, store in verdicts.stores.items()} == {
        name: set() for name in verdicts.stores
    }, REMAKE


def test_no_store_breaks_a_rule(verdicts: Verdicts) -> None:
    assert {name: store.broken for name, store in verdicts.stores.items() if store.broken} == {}


def test_a_broken_rule_would_be_shown() -> None:
    def store(rule: RuleTally) -> StoreVerdict:
        return StoreVerdict(
            versions="Store 1.2",
            python="3.11.0",
            aqueue="0.1.0",
            tested="2026-01-01",
            abilities=["Clearable"],
            checks=2,
            rules={"POP-10": RuleTally(1, []), "POP-2": rule},
        )

    page = rendered(
        Verdicts({"good": store(RuleTally(2, [])), "bad": store(RuleTally(2, ["it_pops: no\nway"]))})
    )

    assert "| bad | Store 1.2 | 3.11.0 | 2026-01-01 | 2 | 1 |" in page
    assert "| can be cleared | yes | yes |" in page
    assert "| POP-2 | yes | **1 of 2 broken** |\n| POP-10 | yes | yes |" in page
    assert page.endswith("## What is broken\n\n- bad, POP-2: it_pops: no way\n")
