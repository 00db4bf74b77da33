"""Joins plan, drive and check of the capacity gate: one item a claim, collected by the gates' own plugin."""

from __future__ import annotations

from gates.plugin import Claim


def test_capacity(claim: Claim) -> None:
    """The claim holds; broken is an assertion, unknown is any other exception."""
    claim.settle()
