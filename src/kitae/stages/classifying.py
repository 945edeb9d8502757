"""Labels of texts from a run, a checkpoint or a Hugging Face folder."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kitae.data.documents import SKIPPING, Document, Field, Tally
from kitae.data.labelled_encode import Encoded, LabelledEncoder, LabelledSpec
from kitae.data.labels import second_text
from kitae.data.sources import Source, open_source
from kitae.data.special import check_token
from kitae.errors import DataError, WeightsError
from kitae.recipe.sources import SourceConfig

if TYPE_CHECKING:
    from kitae.data.word_tokenizer import WordTokenizer
    from kitae.model.encoder import Encoder

AT_ONCE = 2048
"""Texts that are encoded and sorted by length together."""


@dataclass(frozen=True)
class Verdict:
    """What a text is taken for."""

    text: str
    where: str
    """Where the text stands; empty for one of the command line."""
    label: str
    score: float
    """The label's share."""
    scores: dict[str, float]
    """Of every label."""
    cut_tokens: int
    """Tokens at the text's end that the model did not see."""


@dataclass(frozen=True)
class Classifier:
    """A trained classifier with all that it needs to read a text."""

    model: Encoder
    labels: tuple[str, ...]
    tokenizer: WordTokenizer
    encode: LabelledEncoder

    def __call__(self, documents: Iterable[Document], batch_size: int) -> Iterator[Verdict]:
        """A verdict for each text that is not blank, in order; documents may carry a second text."""
        stream = iter(documents)
        while some := list(itertools.islice(stream, AT_ONCE)):
            yield from self._verdicts(some, batch_size)

    def _verdicts(self, documents: Sequence[Document], batch_size: int) -> Iterator[Verdict]:
        from kitae.generate.classify import TextRow, class_probabilities

        found = self.encode([(one.text, one.fields[0] if one.fields else None) for one in documents])
        self._check(documents, found)
        ends = found.lengths.cumsum()
        rows = [
            TextRow(found.ids[end - length : end].tolist(), int(first))
            for end, length, first in zip(ends, found.lengths, found.firsts, strict=True)
            if length
        ]
        shares = iter(class_probabilities(self.model, rows, batch_size).tolist())
        for document, length, cut in zip(documents, found.lengths, found.column("tokens_cut"), strict=True):
            if length:
                yield self._verdict(document, next(shares), int(cut))

    def _check(self, documents: Sequence[Document], found: Encoded) -> None:
        """Raise `DataError` for an id, or a second text, that the model has no embedding for."""
        if self.model.config.type_vocab_size < 2 and (found.firsts < found.lengths).any():
            raise DataError("the model has one token type (type_vocab_size) and reads no pairs of texts")
        largest = int(found.ids.max(initial=0))
        if largest >= self.model.config.vocab_size:
            place = int((found.ids == largest).argmax())
            text = documents[int((found.lengths.cumsum() > place).argmax())]
            token = self.tokenizer.token(largest)
            check_token(largest, token, text.where or repr(text.text), self.model.config.vocab_size)

    def _verdict(self, document: Document, shares: list[float], cut: int) -> Verdict:
        best = max(range(len(shares)), key=shares.__getitem__)
        scores = dict(zip(self.labels, shares, strict=True))
        return Verdict(document.text, document.where, self.labels[best], shares[best], scores, cut)


def open_classifier(path: Path, dictionary: str | None = None) -> Classifier:
    """Load a classifier and its tokenizer; `dictionary` says where that of MeCab lies on this machine.

    WeightsError for a path that holds no classifier, DataError for a tokenizer that cannot be used.
    """
    from kitae.backend.table import select_aside
    from kitae.checkpoint.model_folder import load_model
    from kitae.checkpoint.resume import find_checkpoint
    from kitae.data.word_tokenizer import load_tokenizer
    from kitae.stages.files import read_json
    from kitae.stages.job import tokenizer_of_run
    from kitae.stages.training import load_checkpoint

    if not path.is_dir():
        raise WeightsError(f"{path} is no folder; give a run, a checkpoint or a Hugging Face folder")
    device = select_aside().device
    if (path / "config.json").is_file():
        model, config = load_model(path, device=device), read_json(path / "config.json")
        return _classifier(path, model, config, load_tokenizer(path, dictionary), 0, "none")
    checkpoint = find_checkpoint(path)
    tokenizer = load_tokenizer(tokenizer_of_run(path.absolute()), dictionary)
    length, normalisation = _as_trained(path.absolute())
    loaded = load_checkpoint(checkpoint, device)
    return _classifier(path, loaded, checkpoint.config, tokenizer, length, normalisation)


def _classifier(
    path: Path,
    model: Any,
    config: Mapping[str, Any],
    tokenizer: WordTokenizer,
    length: int,
    normalisation: str,
) -> Classifier:
    from kitae.model.encoder import Encoder
    from kitae.model.targets import label_names

    if not isinstance(model, Encoder) or model.classifier is None:
        kind = ", ".join(config.get("architectures") or ["no class"])
        raise WeightsError(
            f"{path}: {kind} gives no labels; give a model that was trained with objective: classification"
        )
    most = model.config.max_position_embeddings
    spec = LabelledSpec(tokenizer, normalisation, min(length or most, most))
    return Classifier(model.eval(), label_names(config, model.config.num_labels), tokenizer, spec.open())


def _as_trained(path: Path) -> tuple[int, str]:
    """Tokens of a row and normalisation, by the last phase of the run that a path is, or belongs to."""
    from kitae.recipe.load import load_recipe
    from kitae.recipe.schema import phase_recipes

    for place in (path, path.parent, path.parent.parent):
        if (place / "recipe.yaml").is_file():
            _, last = phase_recipes(load_recipe(place / "recipe.yaml").recipe)[-1]
            data = last.data
            return data.sequence_length, data.normalisation
    return 0, "none"


def given_texts(texts: Sequence[str], seconds: Sequence[str]) -> list[Document]:
    """Texts of the command line; raises `DataError` for a blank one."""
    if any(not text.strip() for text in texts):
        raise DataError("--text: a text is blank; give at least one character")
    if seconds:
        return [
            Document(text, "", (second_text(second),)) for text, second in zip(texts, seconds, strict=True)
        ]
    return [Document(text, "") for text in texts]


def texts_of(file: Path, text_field: str, second_field: str | None) -> Iterator[Document]:
    """The texts of a file: lines, or records of JSON lines, CSV, Parquet. Raises `DataError`."""
    if str(file) == "-":
        raise DataError("--file -: standard input is not read; write the texts into a file first")
    config = SourceConfig(path=str(file.absolute()), document="line", text_field=text_field)
    fields = [Field(second_field, "--text-pair-field", second_text)] if second_field is not None else []
    return documents_of(open_source(config, Path.cwd(), fields))


def documents_of(source: Source) -> Iterator[Document]:
    """The documents of a source that no recipe names. Raises `DataError`."""
    try:
        yield from source.documents(Tally())
    except DataError as error:  # readers speak of a recipe, of which there is none here
        message = str(error).replace("data.*.text_field", "--text-field").replace(SKIPPING, "")
        raise DataError(message) from error
