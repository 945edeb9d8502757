"""Text from weights of any format, in this process or in tensor-parallel ranks."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kitae.errors import KitaeError, RecipeError, StoppedError
from kitae.stages.text_model import Opening, TextModel, Words, check_cut, open_text_model, text_launch

if TYPE_CHECKING:
    from kitae.generate.loop import Wish
    from kitae.parallel.mesh import Mesh


@dataclass(frozen=True)
class Request:
    """What is asked for; values of JSON."""

    prompts: Sequence[str]
    chat: bool | None = None
    """Whether a prompt is a message of a conversation; None: where the tokenizer has a template."""
    max_new_tokens: int = 50
    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float = 1.0
    stop: Sequence[str] = ()
    seed: int = 0
    num: int = 1
    """Samples of each prompt."""
    batch_size: int = 8
    """Prompts that run together."""
    stream: bool = False
    as_json: bool = False

    @property
    def texts(self) -> int:
        """How many are generated."""
        return len(self.prompts) * self.num


def generate_texts(opening: Opening, request: Request, tp_size: int = 1) -> None:
    """Print what follows the prompts. KeyboardInterrupt, after what is there was shown, for Ctrl-C."""
    _check(request)
    if tp_size == 1:
        _serve(opening, request, None)
        return
    from kitae.launch.local import launch_ranks

    check_cut(opening, tp_size)
    with tempfile.TemporaryDirectory(prefix="kitae-generate-") as logs:
        launch = text_launch(opening, tp_size, Path(logs), "generate", "stopping after this token")
        arguments = {"opening": asdict(opening), "request": asdict(request)}
        try:
            launch_ranks(f"{__name__}:{generate_rank.__name__}", arguments, launch)
        except StoppedError:
            raise KeyboardInterrupt from None


def generate_rank(mesh: Mesh, opening: dict[str, Any], request: dict[str, Any]) -> None:
    """The work of one tensor-parallel rank; the first one prints."""
    _serve(Opening(**opening), Request(**request), mesh)


def _check(request: Request) -> None:
    """Raise `RecipeError` for what contradicts itself, before any weights are read."""
    _wish_of(request, frozenset())
    if request.stream and request.texts > 1 and not request.as_json:
        raise RecipeError(
            f"--stream: {request.texts} texts at once would be mixed; add --json, whose lines say which "
            "text they belong to, or ask for one"
        )
    if not all(request.stop):
        raise RecipeError("--stop: an empty text is in every text; give at least one character")


def _wish_of(request: Request, eos_ids: frozenset[int], known: Any = None) -> Wish:
    from kitae.generate.loop import Wish
    from kitae.generate.sampling import Sampler

    sampler = Sampler(
        request.temperature,
        request.top_k,
        request.top_p,
        request.min_p,
        request.repetition_penalty,
        request.seed,
    )
    return Wish(request.max_new_tokens, eos_ids, sampler, request.num, known)


def _serve(opening: Opening, request: Request, mesh: Mesh | None) -> None:
    from kitae.generate.loop import continue_prompts
    from kitae.parallel.mesh import Mesh
    from kitae.stages.generated import Shown
    from kitae.train.signals import StopRequested, StopSignals

    mesh = mesh or Mesh()
    model = open_text_model(opening, mesh)
    prompts = [_ids_of(model, request, text) for text in request.prompts]
    wish = _wish_of(request, model.eos_ids, known_ids(model))
    shown = Shown(request, model, leads=mesh.leads)
    shown.note(_unknown(model.words, prompts))
    with StopSignals(mesh.control) if mesh.control.size > 1 else _Unwatched() as stops, shown:
        for first in range(0, len(prompts), request.batch_size):
            some = prompts[first : first + request.batch_size]
            shown.begin(first, some)
            try:
                found = continue_prompts(model.network, some, wish, taken=shown.taken, check=stops.check)
            except StopRequested:
                raise KeyboardInterrupt from None
            except (MemoryError, RuntimeError) as error:
                if not _is_of_memory(error):
                    raise
                raise RecipeError(
                    f"there is not enough memory for {len(some) * request.num:,} texts at once; lower "
                    "--batch-size, --num or --max-new-tokens"
                ) from error
            shown.end(found)


def _is_of_memory(error: Exception) -> bool:
    import torch

    # Refused by a CPU's allocator, it is a RuntimeError like any other.
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)


class _Unwatched:
    """One process: Python's own KeyboardInterrupt is soon enough."""

    def __enter__(self) -> _Unwatched:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing was taken."""

    def check(self) -> None:
        """Nobody else has to know."""


def _unknown(words: Words, prompts: Sequence[Sequence[int]]) -> str:
    """What is said of characters that the tokenizer has no token for."""
    token = getattr(words.tokenizer.backend.model, "unk_token", None)
    number = None if token is None else words.tokenizer.backend.token_to_id(token)
    count = sum(one == number for ids in prompts for one in ids)
    return f"{count} tokens of the prompts are {token}: the tokenizer lacks their text" if count else ""


def known_ids(model: TextModel) -> Any:
    """Which ids the tokenizer has a token for, bool [V]: an embedding may have more rows."""
    import torch

    known = torch.zeros(model.network.config.vocab_size, dtype=torch.bool)
    ids = model.words.tokenizer.backend.get_vocab(with_added_tokens=True).values()
    known[[one for one in ids if one < len(known)]] = True
    return known


def is_chat(words: Words, wanted: bool | None) -> bool:
    """Whether prompts are messages. Raises `RecipeError` where that is asked for and not possible."""
    if wanted and words.template is None:
        raise RecipeError(f"--chat: the tokenizer in {words.place} has no chat template; leave --chat out")
    return words.template is not None if wanted is None else wanted


def _ids_of(model: TextModel, request: Request, text: str) -> list[int]:
    """Ids of a prompt, begun as the tokenizer begins texts. Raises `DataError`."""
    from kitae.data.special import check_token
    from kitae.generate.loop import check_prompt
    from kitae.stages.chat import as_message

    words = model.words
    tokenizer = words.tokenizer
    chat = is_chat(words, request.chat)
    written = as_message(words.template or "", text, words.special, words.place) if chat else text
    begin = [tokenizer.bos_id] if tokenizer.adds_bos and tokenizer.bos_id is not None else []
    ids = tokenizer.encode(written)
    ids = ids if ids[:1] == begin else [*begin, *ids]  # templates write it themselves
    rows = model.network.config.vocab_size
    for token in ids:
        check_token(token, tokenizer.token(token), "the prompt", rows)
    try:
        check_prompt(model.network.config, ids)
    except KitaeError as error:
        shown = text if len(text) <= 40 else f"{text[:40]}..."
        raise type(error)(f"prompt {shown!r}: {error}") from None
    return ids
