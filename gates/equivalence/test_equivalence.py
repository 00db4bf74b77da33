"""Joins plan, drive and check of the equivalence gate: an item a claim, for the plugin of the gates."""

from __future__ import annotations

from gates.plugin import Claim


def test_equivalence(claim: Claim) -> None:
    """The claim holds; broken is an assertion, unknown is any other exception."""
    claim.settle()
