import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kitae.recipe.base import Duration


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("200 steps", 200, "steps"),
        ("1 step", 1, "steps"),
        ("1.5M tokens", 1_500_000, "tokens"),
        ("8.2M tokens", 8_200_000, "tokens"),
        ("2k steps", 2000, "steps"),
        ("1B tokens", 10**9, "tokens"),
        ("0.5 epochs", 0.5, "epochs"),
        ("  3   epochs ", 3, "epochs"),
        ("0 steps", 0, "steps"),
    ],
)
def test_reads(text, value, unit):
    assert Duration.parse(text) == Duration(value, unit)


@pytest.mark.parametrize(
    "text", ["", "10", "ten steps", "-1 steps", "1e3 steps", "1.5 steps", "3 days", "1 2 steps", 7]
)
def test_refuses(text):
    with pytest.raises(ValueError, match=r"not a (duration|whole number)"):
        Duration.parse(text)


def test_steps_count_optimizer_updates():
    sizes = {"tokens_per_step": 1000, "samples": 10, "global_batch_size": 4}
    assert Duration.parse("7 steps").steps(**sizes) == 7
    assert Duration.parse("2500 tokens").steps(**sizes) == 3
    assert Duration.parse("1 epochs").steps(**sizes) == 3, "T36: 10 samples in fours: the last update has 2"
    assert Duration.parse("2 epochs").steps(**sizes) == 5


def test_an_epoch_of_1000_samples_is_10_updates():
    """T49: 1,000 samples, batch 5 x data-parallel 4 x accumulation 5."""
    assert Duration(1, "epochs").steps(tokens_per_step=1, samples=1000, global_batch_size=5 * 4 * 5) == 10


@settings(deadline=None, max_examples=200)
@given(st.integers(0, 10**12), st.sampled_from(["steps", "tokens", "epochs"]))
def test_what_is_written_is_read_back(value, unit):
    assert Duration.parse(str(Duration(value, unit))) == Duration(value, unit)
    part = Duration(value / 10**6, "epochs")
    assert Duration.parse(str(part)) == part
