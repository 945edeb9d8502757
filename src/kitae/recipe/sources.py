"""Where the model, the tokenizer and the text come from."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from kitae import catalog
from kitae.recipe.base import FieldError, LocalPath, NonEmpty, Positive, Section
from kitae.recipe.labels import LabelsConfig
from kitae.recipe.masking import MaskingConfig
from kitae.recipe.model_shape import check_shape


def _known_model(name: str) -> str:
    return catalog.named_model(name).name


def _known_preset(name: str) -> str:
    return catalog.preset(name).name


ModelName = Annotated[str, AfterValidator(_known_model)]
PresetName = Annotated[str, AfterValidator(_known_preset)]


def exactly_one(section: Section, fields: tuple[str, ...]) -> None:
    """Raise `ValueError` unless exactly one of `fields` is set in `section`."""
    given = [name for name in fields if getattr(section, name) is not None]
    if len(given) != 1:
        found = f"found {' and '.join(given)}" if given else "found none"
        raise ValueError(f"give exactly one of {', '.join(fields)}; {found}")


class ShapeConfig(Section):
    """Sizes of a model that starts from random weights; each overrides the preset's value."""

    vocab_size: Positive | None = None
    """Rows of the embedding; taken from the tokenizer when left out."""
    hidden_size: Positive | None = None
    """Width of the residual stream."""
    intermediate_size: Positive | None = None
    """Width of the gated MLP."""
    num_layers: Positive | None = None
    """Number of decoder blocks."""
    num_heads: Positive | None = None
    """Query heads."""
    num_kv_heads: Positive | None = None
    """Key and value heads; divides num_heads."""
    head_dim: Positive | None = None
    """Size of one head; when left out the preset's, or hidden_size / num_heads where it has none."""
    max_positions: Positive | None = None
    """Longest sequence the model is made for."""
    rope_theta: Annotated[float, Field(gt=0)] | None = None
    """Base of the rotary position embedding."""
    tie_embeddings: bool | None = None
    """Whether the output head is the embedding."""


class ModelConfig(Section):
    """The model to start from: exactly one of folder, hub, named, run or preset."""

    folder: LocalPath | None = None
    """A Hugging Face folder: config.json with .safetensors or .bin weights."""
    hub: NonEmpty | None = None
    """A Hugging Face Hub id, owner/name. Only this makes kitae contact the Hub."""
    revision: NonEmpty | None = None
    """Branch, tag or commit of the Hub id."""
    named: ModelName | None = None
    """A model of kitae's catalogue that arrives in a package, such as smollm2-135m."""
    run: LocalPath | None = None
    """A kitae run or one of its checkpoints: weights only, but for with_optimizer; the rest starts anew."""
    with_optimizer: bool = False
    """With run: its optimizer's state and its step count go on too; the data begin anew."""
    preset: PresetName | None = None
    """A model shape of kitae's catalogue, with random weights."""
    shape: ShapeConfig | None = None
    """Changes to the preset's sizes."""

    @model_validator(mode="after")
    def _check(self) -> ModelConfig:
        exactly_one(self, ("folder", "hub", "named", "run", "preset"))
        if self.revision is not None and self.hub is None:
            raise FieldError("revision", "has no effect without hub; take it out, or name a hub id")
        if self.with_optimizer and self.run is None:
            raise FieldError("with_optimizer", "has no effect without run; take it out, or name a run")
        if self.shape is not None and self.preset is None:
            raise FieldError(
                "shape", "has no effect without preset: a pretrained model has its own sizes; take it out"
            )
        if self.preset is not None:
            check_shape(self)
        return self


class TokenizerConfig(Section):
    """Where the tokenizer comes from: exactly one of folder, hub or named."""

    folder: LocalPath | None = None
    """A folder with tokenizer.json (or files that transformers can turn into one)."""
    hub: NonEmpty | None = None
    """A Hugging Face Hub id."""
    revision: NonEmpty | None = None
    """Branch, tag or commit of the Hub id."""
    named: ModelName | None = None
    """A model of kitae's catalogue whose tokenizer is used."""
    dictionary: Literal["unidic_lite", "ipadic", "unidic"] | LocalPath | None = None
    """MeCab dictionary of a Japanese tokenizer, or the folder of one; null: as the tokenizer's files say."""

    @model_validator(mode="after")
    def _check(self) -> TokenizerConfig:
        exactly_one(self, ("folder", "hub", "named"))
        if self.revision is not None and self.hub is None:
            raise FieldError("revision", "has no effect without hub; take it out, or name a hub id")
        return self


class SourceConfig(Section):
    """A source of documents: exactly one of path or hub."""

    path: LocalPath | None = None
    """A file, a folder or a glob, relative to the recipe's folder."""
    hub: NonEmpty | None = None
    """A data set on the Hugging Face Hub, owner/name."""
    name: NonEmpty | None = None
    """Configuration of the Hub data set."""
    revision: NonEmpty | None = None
    """Branch, tag or commit of the Hub data set."""
    split: NonEmpty = "train"
    """Split of a Hub data set or of a saved `datasets` folder."""
    format: Literal["auto", "text", "jsonl", "csv", "parquet", "datasets", "hdf5"] = "auto"
    """Kind of the files; auto goes by their endings."""
    text_field: NonEmpty = "text"
    """Field or column that holds the document."""
    document: Literal["file", "line", "paragraph"] = "file"
    """What one document of a text file is: the file, a line, or a block between blank lines."""

    @model_validator(mode="after")
    def _check(self) -> SourceConfig:
        exactly_one(self, ("path", "hub"))
        if self.hub is None and (self.name is not None or self.revision is not None):
            field = "name" if self.name is not None else "revision"
            raise FieldError(field, "has no effect without hub; take it out, or name a hub data set")
        return self


class HeldoutConfig(Section):
    """Text that is never trained on: a share of the training documents, or sources of its own."""

    fraction: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Share of the training documents to hold out, chosen by a hash of each document."""
    sources: list[SourceConfig] | None = None
    """Sources that hold only held-out text."""

    @model_validator(mode="after")
    def _check(self) -> HeldoutConfig:
        exactly_one(self, ("fraction", "sources"))
        if self.sources is not None and not self.sources:
            raise FieldError("sources", "is empty; name a source, or take heldout out")
        return self


class DataConfig(Section):
    """Text, and how it becomes rows of tokens."""

    train: Annotated[list[SourceConfig], Field(min_length=1)]
    """Sources to train on."""
    heldout: HeldoutConfig | None = None
    """Held-out text; without it nothing is evaluated."""
    tokenizer: TokenizerConfig | Literal["auto"] = "auto"
    """The tokenizer; auto takes the model's own."""
    sequence_length: Annotated[int, Field(ge=2)] = 512
    """Tokens in a row."""
    bos: Literal["auto", "always", "never"] = "auto"
    """Put the tokenizer's begin token before each document; auto does what the tokenizer itself does."""
    eos: Literal["auto", "always", "never"] = "auto"
    """Put the tokenizer's end token behind each document; auto does so when the tokenizer has one."""
    document_mask: bool = True
    """Documents that share a row do not see each other, and positions restart at each of them."""
    normalisation: Literal["none", "nfc", "nfkc"] = "none"
    """Unicode normalisation before tokenisation; changed documents are counted in the data card."""
    on_bad_line: Literal["stop", "skip"] = "stop"
    """What a broken line does: stop with its file and number, or be skipped, counted and reported."""
    remainder: Literal["drop", "pad"] = "drop"
    """The tokens left after the last full training row: dropped and reported, or padded into one more row."""
    workers: Annotated[int, Field(ge=0)] | Literal["auto"] = "auto"
    """Tokeniser processes; 0 works in the main process, auto goes by cores and size of the text."""
    masking: MaskingConfig | None = None
    """What is hidden of a text, for the objective masked-lm; null takes the defaults."""
    labels: LabelsConfig | None = None
    """Labels of the texts, for the objective classification."""

    @property
    def dictionary(self) -> str | None:
        """The MeCab dictionary that the recipe names."""
        return None if self.tokenizer == "auto" else self.tokenizer.dictionary
