"""Joins plan, drive and check of the churn gate: one item a claim, collected by the gates' own plugin."""

from __future__ import annotations

from gates.plugin import Claim


def test_churn(claim: Claim) -> None:
    """The claim holds; broken is an assertion, unknown is any other exception."""
    claim.settle()
