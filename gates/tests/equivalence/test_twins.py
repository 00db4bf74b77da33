"""How far a kernel is from its definition: NaN and infinities match only their own kind."""

from __future__ import annotations

import pytest
import torch

from gates.equivalence.twins import BEYOND, distances

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("found", "wanted"), [(NAN, INF), (INF, NAN), (1.0, NAN), (INF, 1.0)], ids=lambda value: f"{value:g}"
)
def test_what_is_no_number_on_one_side_alone_is_beyond_every_tolerance(found: float, wanted: float) -> None:
    said = distances(torch.tensor([2.0, found]).double(), torch.tensor([2.0, wanted]).double(), "relative")

    assert (BEYOND, 1) == (said["error_found"], said["worst"])


def test_infinities_of_other_signs_are_apart() -> None:
    left, right = torch.tensor([INF, 1.0]).double(), torch.tensor([-INF, 1.0]).double()

    assert distances(left, right, "exact")["error_found"] == 1.0


@pytest.mark.parametrize(("measure", "error"), [("exact", 0.0), ("share", 0.0), ("relative", 0.0)])
def test_the_same_values_are_nowhere_apart(measure: str, error: float) -> None:
    values = torch.tensor([NAN, INF, -INF, 0.0, 3.0]).double()

    assert error == distances(values, values.clone(), measure)["error_found"]


@pytest.mark.parametrize(("measure", "error"), [("exact", 1.0), ("share", 0.25), ("relative", 0.5)])
def test_an_error_is_counted_as_its_measure_says(measure: str, error: float) -> None:
    found, wanted = torch.tensor([1.0, 2.0, 3.0, 2.0]).double(), torch.tensor([1.0, 2.0, 3.0, 4.0]).double()

    assert error == distances(found, wanted, measure)["error_found"]
