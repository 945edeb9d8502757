import pytest

from kitae.errors import RecipeError
from kitae.recipe.load import load_recipe
from kitae.recipe.masking import MaskingConfig
from kitae.recipe.resolve import resolve


def loaded(write, *flags):
    return load_recipe(write(), ["objective=masked-lm", *flags]).recipe


def test_defaults_are_those_of_bert(write):
    masking = loaded(write, "data.masking={}").data.masking
    assert (masking.probability, masking.replace, masking.random) == (0.15, 0.8, 0.1)
    assert (masking.whole_word, masking.dynamic, masking.next_sentence) == (True, True, True)
    assert loaded(write).data.masking is None


@pytest.mark.parametrize(
    ("size", "probability", "most"),
    [(128, 0.15, 20), (512, 0.15, 80), (64, 0.15, 10), (256, 0.15, 40), (100, 0.4, 40), (3, 0.5, 3)],
)
def test_most_predictions_follow_from_the_length(size, probability, most):
    assert MaskingConfig(probability=probability).predictions(size) == most


def test_most_predictions_may_be_set(write):
    masking = loaded(write, "data.masking.max_predictions=7").data.masking
    assert masking.predictions(128) == 7
    assert masking.predictions(4) == 4


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("data.masking.probability=1.0", "probability"),
        ("data.masking.replace=0.95", r"data\.masking\.replace: with random it makes 1\.05"),
        ("data.masking.max_predictions=0", "max_predictions"),
        ("data.masking.sentences=regex", "punctuation or line"),
        ("data.masking.whole_words=true", "whole_word"),
    ],
)
def test_what_makes_no_sense_is_refused(write, flag, message):
    with pytest.raises(RecipeError, match=message):
        loaded(write, flag)


def test_settings_without_effect_are_told(write):
    recipe = loaded(write, "data.eos=never", "data.masking={replace: 0.0, random: 0.0}")
    warnings = resolve(recipe, backend="cpu").warnings
    assert warnings[:2] == (
        "data.eos: has no effect with objective masked-lm, whose rows end with a document",
        "data.masking.replace: with random 0 as well nothing is hidden, and the model can copy",
    )
    few = loaded(write, "data.sequence_length=128", "data.masking.max_predictions=10")
    assert resolve(few, backend="cpu").warnings[0] == (
        "data.masking.max_predictions: 10 of 128 positions are fewer than probability 0.15 asks for"
    )
    other = load_recipe(write(), ["data.masking={}"]).recipe
    assert resolve(other, backend="cpu").warnings[0].startswith("data.masking: has no effect with objective")
