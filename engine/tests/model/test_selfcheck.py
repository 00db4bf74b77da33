"""The proof at start: it holds here, and it would notice."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from engine.model.selfcheck import Case, Exactness, check_rows, keeps_bits
from engine.tests.small import SMALL


def test_this_machine_keeps_the_bits_of_rows() -> None:
    found = check_rows(SMALL)

    assert () == found.failed
    assert found.holds
    assert "proved at start" in found.describe()


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(lambda x: x + (x.shape[0] > 100) * 1e-6, id="many_rows"),
        pytest.param(lambda x: x + (x.shape[0] == 1) * 1e-6, id="one_row"),
        pytest.param(lambda x: x + (torch.get_num_threads() == 1) * 1e-6, id="threads"),
    ],
)
def test_a_product_that_depends_on_its_company_is_noticed(run: Callable[[Tensor], Tensor]) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert not keeps_bits(Case("bad", run, torch.ones(200, 3)))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_single_count_of_rows_that_differs_is_noticed_where_every_count_is_tried(threads: int) -> None:
    def run(x: Tensor) -> Tensor:
        return x + (x.shape[0] == 40 and torch.get_num_threads() == threads) * 1e-6

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert keeps_bits(Case("some", run, torch.ones(200, 3)))
        assert not keeps_bits(Case("all", run, torch.ones(200, 3), (4, 40, 200), every=True))
    finally:
        torch.set_num_threads(before)


def test_a_failed_proof_is_said_in_so_many_words() -> None:
    found = Exactness(("matmul 64 to 256", "sigmoid"), 0.1)

    assert not found.holds
    assert "NOT exact on this machine" in found.describe()
    assert "matmul 64 to 256, sigmoid" in found.describe()
