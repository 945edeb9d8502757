"""What `kitae new` finds out: what a text holds, which model a word means, and what fits here."""

from __future__ import annotations

import csv
import glob
import json
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kitae.catalog.models import named_models, preset_of, presets
from kitae.errors import RecipeError
from kitae.recipe.labels import plain_label
from kitae.recipe.load import load_recipe
from kitae.recipe.starter import What, Wish, starter_recipe
from kitae.suggest import did_you_mean

if TYPE_CHECKING:
    from kitae.plan.estimate import Estimate

SECONDS = 180.0
"""How long a new recipe is planned to train here."""
LEAST_STEPS, MOST_STEPS, EPOCHS = 20, 2000, 3
_BYTES_A_TOKEN = 3.0
_TEXT_FIELDS = ("text", "review_body", "body", "content", "sentence", "review")
_LABEL_FIELDS = ("label", "labels", "class", "stars", "rating", "sentiment", "category")
_PROBED_ROWS = 200
MOST_LABELS = 20
_SIZES = {"smollm2-135m": "llama-135m"}
"""Packaged model -> the preset of its sizes, so that a plan need not fetch it."""
DECODER_TOKENIZER = {"named": "smollm2-135m"}
ENGLISH, JAPANESE = "google-bert/bert-base-uncased", "cl-tohoku/bert-base-japanese-whole-word-masking"
_DEFAULTS: dict[What, str] = {"continue": "smollm2-135m", "pretrain": "llama-10m", "masked": "bert-tiny"}
_WORDS = {False: {"hub": ENGLISH}, True: {"hub": JAPANESE, "dictionary": "ipadic"}}
"""Whether the text is Japanese -> a tokenizer for a BERT of it."""
FITTING = ((512, "none"), (256, "none"), (128, "none"), (128, "selective"), (128, "full"))
"""Row length and recomputation, the largest first."""
SHORT = 128
"""Longest rows of labelled texts."""


def default_model(what: What, text: str | None) -> str:
    """The model that is proposed for a text."""
    return _DEFAULTS.get(what) or (JAPANESE if text is not None and is_japanese(text) else ENGLISH)


def known_models(what: What) -> list[str]:
    """Names of the catalogue that fit what is done."""
    wants_encoder = what in ("classify", "masked")
    fitting = [
        name for name, one in presets().items() if (one.config["model_type"] == "bert") is wants_encoder
    ]
    return fitting if wants_encoder or what == "pretrain" else [*named_models()]


def model_of(what: What, word: str) -> tuple[str, str]:
    """The key of `model` that a word is for, and its value. Raises `RecipeError`."""
    if word in named_models():
        found = ("named", word)
    elif word in presets():
        found = ("preset", word)
    elif Path(word).expanduser().is_dir():
        return "folder", str(Path(word).expanduser().absolute())
    elif word.count("/") == 1 and not word.startswith((".", "/", "~")):
        return "hub", word
    else:
        names = [*named_models(), *presets()]
        raise RecipeError(
            f"--model: {word!r} is no name of the catalogue, no folder that is here, no Hub id (owner/name)"
            f"{did_you_mean(word, names)}"
        )
    if word in presets() and (presets()[word].config["model_type"] == "bert") is not (
        what in ("classify", "masked")
    ):
        needs = (
            "an encoder, such as bert-tiny"
            if what in ("classify", "masked")
            else "a decoder, such as llama-10m"
        )
        raise RecipeError(f"--model: {word} is of the other kind; {what} needs {needs}")
    return found


def files_of(text: str) -> list[Path]:
    """The files that a text consists of. Raises `RecipeError`."""
    found = [Path(one) for one in glob.iglob(str(Path(text).expanduser()))]  # noqa: PTH207 - also absolute ones
    files = [file for one in found for file in (sorted(one.rglob("*")) if one.is_dir() else [one])]
    files = [file for file in files if file.is_file()]
    if not files:
        raise RecipeError(f"--text: {text} is not there; name a file, a folder or a pattern: 'texts/*.txt'")
    return files


def is_japanese(text: str) -> bool:
    """Whether a text has kana."""
    return any("\u3040" <= letter <= "\u30ff" for letter in _beginning(files_of(text)[0]))


def _beginning(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return opened.read(1 << 16).decode("utf-8", "replace")
    except OSError as error:
        raise RecipeError(f"--text: {file} cannot be read: {error.strerror}") from error


def wish_of(name: str, what: What, model: str, text: str) -> Wish:
    """The recipe that is wished for, as far as the text tells. Raises `RecipeError`."""
    kind, value = model_of(what, model)
    files = files_of(text)
    wish = Wish(name, what, (kind, value), str(Path(text).expanduser().absolute()))
    wish = _with_fields(wish, files[0])
    if kind != "preset":
        japanese = {"hub": value, "dictionary": "ipadic"} if value == JAPANESE else {}
        return replace(wish, tokenizer=japanese)
    words = _WORDS[is_japanese(text)]
    return replace(wish, tokenizer=words if what in ("classify", "masked") else DECODER_TOKENIZER)


def _with_fields(wish: Wish, file: Path) -> Wish:
    rows = list(islice(_records(file), _PROBED_ROWS))
    if not rows:
        if wish.what == "classify":
            raise RecipeError(
                f"--text: {file} has no labels; give JSON lines, CSV or TSV with a field for the text "
                "and one for the label"
            )
        whole = _beginning(file)
        return replace(wish, document="paragraph" if "\n\n" in whole else "line")
    text = _text_field(rows)
    if wish.what != "classify":
        return replace(wish, text_field=text)
    field = _label_field(rows, text, file)
    labels = sorted({plain_label(str(row[field])) for row in rows if row.get(field) is not None})
    if not 2 <= len(labels) <= MOST_LABELS:
        raise RecipeError(
            f"--text: {file} has {len(labels)} values of {field!r}, where 2 to {MOST_LABELS} classes "
            "can be told apart; give a file whose label is in a field called label"
        )
    return replace(wish, text_field=text, label_field=field, labels=tuple(labels))


def _records(file: Path) -> Iterator[Mapping[str, Any]]:
    """Rows of a file of records; none of another file."""
    if file.suffix == ".jsonl":
        for line in _beginning(file).splitlines()[:-1] or _beginning(file).splitlines():
            try:
                row = json.loads(line)
            except json.JSONDecodeError:
                return
            if isinstance(row, dict):
                yield row
    elif file.suffix in (".csv", ".tsv"):
        yield from csv.DictReader(
            _beginning(file).splitlines(), delimiter="\t" if file.suffix == ".tsv" else ","
        )


def _text_field(rows: list[Mapping[str, Any]]) -> str:
    usual = [name for name in _TEXT_FIELDS if isinstance(rows[0].get(name), str)]
    return (
        usual[0] if usual else max(rows[0], key=lambda name: sum(len(str(row.get(name, ""))) for row in rows))
    )


def _label_field(rows: list[Mapping[str, Any]], text: str, file: Path) -> str:
    others = [name for name in rows[0] if name != text]
    usual = [name for name in _LABEL_FIELDS if name in others]
    few = sorted(others, key=lambda name: len({str(row.get(name)) for row in rows}))
    found = [*usual, *few]
    if not found:
        raise RecipeError(f"--text: {file} has no field for the label beside {text!r}")
    return found[0]


def fitted(wish: Wish) -> tuple[Wish, str]:
    """The wish in rows that fit this machine, for some minutes of training, and what is said of it.

    Raises `RecipeError` where even the smallest rows do not fit.
    """
    found = None
    longest = SHORT if wish.what == "classify" else max(length for length, _ in FITTING)
    for length, recompute in FITTING if _is_known(wish) else ():
        if length > longest:
            continue
        wish = replace(wish, sequence_length=length, recompute=recompute)
        found = _planned(wish)
        if found.verdict.word == "fits":
            wish = replace(wish, duration=_duration(wish, found))
            return wish, _planned(wish).sentence
    if found is not None:
        raise RecipeError(f"--model: {wish.model[1]} does not fit here even in short rows: {found.sentence}")
    return replace(
        wish, sequence_length=128
    ), "its sizes are not known here yet; kitae plan says whether it fits"


def _is_known(wish: Wish) -> bool:
    kind, value = wish.model
    return kind in ("preset", "folder") or value in _SIZES or (kind == "hub" and preset_of(value) is not None)


def _planned(wish: Wish) -> Estimate:
    """The plan for this machine, of a model whose files need not be here."""
    from kitae.stages.estimating import estimate_of, machine_of, open_plan, shape_of

    if wish.model[1] in _SIZES:
        wish = replace(wish, model=("preset", _SIZES[wish.model[1]]), tokenizer=DECODER_TOKENIZER)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "recipe.yaml"
        path.write_text(starter_recipe(wish), "utf-8")
        job = open_plan(path, report=lambda line: None)
        return estimate_of(job, shape_of(job, guess=True), machine_of(job, None))


def _duration(wish: Wish, found: Estimate) -> str:
    """Some minutes here, and no more than some times through the text."""
    if wish.what == "classify":
        return f"{EPOCHS} epochs"
    phase = found.phases[0]
    tokens = sum(file.stat().st_size for file in files_of(wish.path)) / _BYTES_A_TOKEN
    enough = int(EPOCHS * tokens / phase.tokens_per_step)
    steps = min(int(SECONDS / phase.time.interval[1]), enough, MOST_STEPS)
    return f"{max(LEAST_STEPS, steps)} steps"


def write_new(path: Path, text: str) -> None:
    """Write a file that is not there yet, and read it back as a recipe. Raises `RecipeError`."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise RecipeError(f"{path} is there already, and is left as it is; name another file") from None
    except OSError as error:
        raise RecipeError(f"{path} cannot be written: {error.strerror}") from error
    load_recipe(path)
