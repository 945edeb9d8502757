import random

import pytest
import torch
from tiny_encoders import reference, same_in_kitae

from kitae.generate.classify import TextRow, class_probabilities


@pytest.fixture(scope="module")
def stock():
    return reference("classification")


@pytest.fixture(scope="module")
def model(stock):
    return same_in_kitae(stock).eval()


def rows(count=9):
    draw = random.Random(0)
    lengths = [draw.randint(2, 60) for _ in range(count)]
    return [TextRow([draw.randrange(1, 99) for _ in range(n)], draw.randint(1, n)) for n in lengths]


@torch.inference_mode()
def expected(stock, row):
    types = [int(place >= row.first) for place in range(len(row.ids))]
    given = {"input_ids": torch.tensor([row.ids]), "token_type_ids": torch.tensor([types])}
    return stock(**given).logits.softmax(-1)[0]


@pytest.mark.parametrize("batch_size", [1, 4, 100])
def test_shares_are_those_of_transformers_whatever_the_batch(stock, model, batch_size):
    found = class_probabilities(model, rows(), batch_size)
    assert found.dtype == torch.float32
    torch.testing.assert_close(
        found, torch.stack([expected(stock, row) for row in rows()]), atol=1e-5, rtol=0
    )
    torch.testing.assert_close(found.sum(-1), torch.ones(9))


def test_no_rows_give_nothing(model):
    assert class_probabilities(model, [], 4).shape == (0, 3)


def test_a_row_of_all_positions_fits(stock, model):
    row = TextRow([5] * 160, 160)
    found = class_probabilities(model, [row], 1)
    torch.testing.assert_close(found[0], expected(stock, row), atol=1e-5, rtol=0)
