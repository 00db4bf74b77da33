"""Joins the echo gate's plan, drive and check: one item a claim, through the plugin."""

from gates.plugin import Claim


def test_claim(claim: Claim) -> None:
    """The claim holds."""
    claim.settle()
