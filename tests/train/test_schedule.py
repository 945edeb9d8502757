import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_training import recipe

from kitae.recipe.base import Duration
from kitae.recipe.training import ScheduleConfig
from kitae.train.lengths import count_out
from kitae.train.schedule import DECAYS, Schedule


def schedule(kind="linear", peak=1.0, steps=10, warmup=0, min_ratio=0.0):
    config = ScheduleConfig(kind=kind, min_ratio=min_ratio)
    return Schedule(config, peak, steps, warmup)


def test_warm_up_as_a_published_log_has_it():
    """Log: step 1 lr 1.50e-06, step 2 lr 3.00e-06, warm-up of 100 steps to 1.5e-4."""
    rates = schedule(peak=1.5e-4, steps=1000, warmup=100)
    assert [f"{rates.rate(update):.2e}" for update in (0, 1)] == ["1.50e-06", "3.00e-06"]
    assert rates.rate(99) == rates.rate(100) == pytest.approx(1.5e-4)
    assert rates.rate(101) < 1.5e-4


@pytest.mark.parametrize(("parallel", "accumulation"), [(1, 20), (2, 10), (4, 5)])
def test_rates_do_not_depend_on_the_cut(parallel, accumulation):
    """T49: 1,000 samples, bs 5, dp 4, ga 5: 10 updates an epoch, as for dp 1 and 2; 0 at update 10."""
    batch = 5 * parallel * accumulation
    training = {"duration": "1 epochs", "global_batch_size": batch, "micro_batch_size": 5}
    lengths = count_out(
        recipe(training=training, evaluation={"micro_batch_size": 5}), samples=1000, sequence_length=16
    )
    assert lengths.steps == 10
    rates = schedule(steps=lengths.steps)
    assert [rates.rate(update) for update in range(11)] == pytest.approx(
        [1 - update / 10 for update in range(11)]
    )
    assert rates.rate(9) > 0
    assert rates.rate(10) == 0


def test_shapes_of_the_decay():
    assert schedule("cosine").rate(5) == pytest.approx(0.5)
    assert schedule("cosine").rate(0) == 1
    assert schedule("cosine").rate(10) == pytest.approx(0, abs=1e-15)
    assert schedule("cosine", min_ratio=0.1).rate(10) == pytest.approx(0.1)
    assert schedule("linear", min_ratio=0.2).rate(5) == pytest.approx(0.6)
    assert schedule("constant", warmup=3).rate(9) == 1


@settings(deadline=None, max_examples=60)
@given(
    kind=st.sampled_from(sorted(DECAYS)),
    steps=st.integers(1, 60),
    warmup=st.integers(0, 70),
    min_ratio=st.floats(0, 1),
)
def test_rises_then_falls_and_stays_within_bounds(kind, steps, warmup, min_ratio):
    rates = [schedule(kind, 2.0, steps, warmup, min_ratio).rate(update) for update in range(steps + 5)]
    assert all(0 <= rate <= 2 + 1e-12 and math.isfinite(rate) for rate in rates)
    top = min(warmup, len(rates))
    assert rates[:top] == sorted(rates[:top])
    assert all(
        later <= earlier + 1e-12 for earlier, later in zip(rates[top:], rates[top + 1 :], strict=False)
    )


def counted(samples, sequence_length=16, evaluation="never", save="never", warmup="0 steps", **training):
    given = {"micro_batch_size": 1, "global_batch_size": 4, **training}
    return count_out(
        recipe(
            training=given,
            evaluation={"every": evaluation, "micro_batch_size": 1},
            checkpoint={"every": save},
            schedule={"warmup": warmup},
        ),
        samples=samples,
        sequence_length=sequence_length,
    )


def test_a_partial_last_window_is_one_smaller_update():
    """T18: 10 samples, micro-batch 1, 4 accumulation steps: 3 updates, the last of 2 rows."""
    lengths = counted(10, duration="1 epochs")
    assert lengths.steps == 3
    assert lengths.accumulation_steps == 4
    assert [lengths.rows_of(update) for update in range(3)] == [4, 4, 2]


@pytest.mark.parametrize(
    ("duration", "rows"),
    [("3 epochs", 30), ("0.5 epochs", 5), ("7 steps", 28), ("100 tokens", 7), ("1 tokens", 1)],
)
def test_lengths_in_every_unit(duration, rows):
    lengths = counted(10, duration=duration)
    assert lengths.rows == rows
    steps = Duration.parse(duration).steps(tokens_per_step=64, samples=10, global_batch_size=4)
    assert lengths.steps == steps == math.ceil(rows / 4)
    assert sum(lengths.rows_of(update) for update in range(steps)) == rows


def test_everything_is_counted_in_updates():
    lengths = counted(10, duration="2 epochs", evaluation="64 tokens", save="1 epochs", warmup="128 tokens")
    assert (lengths.eval_every, lengths.save_every, lengths.warmup_steps) == (1, 3, 2)
    assert counted(10, duration="2 epochs", evaluation="0.0001 epochs").eval_every == 1
    assert counted(10, duration="2 epochs").save_every is None
