"""What a run's key is made of: fields that came later leave the keys of older runs as they were."""

from __future__ import annotations

from kitae.recipe.training import OptimizerConfig, TrainingConfig
from kitae.stages.job import learning

OLD_OPTIMIZER = {"name", "learning_rate", "betas", "eps", "weight_decay", "max_grad_norm"}
OLD_TRAINING = {"duration", "global_batch_size", "precision"}


def sections(**changes: object) -> dict:
    training = TrainingConfig.model_validate({"duration": "5 steps"}).model_dump(mode="json")
    return {
        "training": training,
        "optimizer": OptimizerConfig.model_validate(changes).model_dump(mode="json"),
        "seed": 3,
    }


def test_fields_that_came_later_are_in_no_key_as_long_as_nothing_is_set():
    found = learning(sections())
    assert set(found["optimizer"]) == OLD_OPTIMIZER
    assert set(found["training"]) == OLD_TRAINING
    assert found["seed"] == 3


def test_they_are_in_it_where_they_change_what_is_learned():
    assert learning(sections(name="lamb", max_trust_ratio=1.0))["optimizer"]["max_trust_ratio"] == 1.0


def test_sections_that_are_not_there_stay_away():
    assert learning({"seed": 3}) == {"seed": 3}
