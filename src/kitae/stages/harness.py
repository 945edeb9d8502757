"""Tasks of lm-evaluation-harness, judged by kitae's own forward pass (extra `kitae[eval]`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kitae.errors import RecipeError
from kitae.stages.text_model import Opening, TextModel, open_text_model

if TYPE_CHECKING:
    from kitae.generate.judge import Judged

NEEDED = (
    "--tasks needs lm-evaluation-harness, which is not installed; install it with: pip install 'kitae[eval]'"
)
NEW_TOKENS = 256
"""How many are generated where a task does not say."""


def run_tasks(
    opening: Opening, tasks: Sequence[str], folder: Path | None = None, limit: int | None = None
) -> dict[str, Any]:
    """Results by task, as the harness names them; `folder` describes tasks that it does not have.

    RecipeError without the harness, and for a task that it does not know.
    """
    try:
        import lm_eval
        from lm_eval.tasks import TaskManager
    except ImportError as error:
        raise RecipeError(f"{NEEDED} ({error})") from None
    manager = TaskManager(include_path=None if folder is None else str(folder))
    unknown = [name for name in tasks if not manager.match_tasks([name])]
    if unknown or not tasks:
        raise RecipeError(
            f"--tasks: {', '.join(unknown) or 'no task'} is not known to lm-evaluation-harness; `lm_eval ls "
            "tasks` lists what is, and --tasks-folder names a folder with others"
        )
    model = adapter(open_text_model(opening))
    found = lm_eval.simple_evaluate(model, tasks=list(tasks), limit=limit, task_manager=manager)
    assert found is not None, "only other ranks than the first get nothing"
    return {"results": found["results"], "quantize": opening.quantize, "weights": opening.path}


def task_lines(found: dict[str, Any]) -> list[str]:
    """What was found, for a person."""
    return [
        f"{task}: {name.partition(',')[0]} {value:.4f}"
        for task, metrics in found["results"].items()
        for name, value in metrics.items()
        if isinstance(value, float) and "stderr" not in name
    ]


def adapter(model: TextModel) -> Any:
    """The model with the face that the harness asks: a `TemplateLM`."""
    from lm_eval.api.model import TemplateLM

    class Harnessed(TemplateLM):  # type: ignore[misc]
        """A kitae model."""

        @property
        def eot_token_id(self) -> int:
            return _begin(model)

        def tok_encode(
            self, string: str, add_special_tokens: bool | None = None, **options: Any
        ) -> list[int]:
            return encoded(model, string, add_special_tokens)

        def _loglikelihood_tokens(self, requests: Any, **options: Any) -> list[tuple[float, bool]]:
            pairs = [(context, continuation) for _, context, continuation in requests]
            return [(-one.nats, one.greedy) for one in judged(model, pairs)]

        def loglikelihood_rolling(self, requests: Any, disable_tqdm: bool = False) -> list[float]:
            return [rolled(model, request.args[0]) for request in requests]

        def generate_until(self, requests: Any, disable_tqdm: bool = False) -> list[str]:
            return [answered(model, *request.args) for request in requests]

    return Harnessed()


def _begin(model: TextModel) -> int:
    """What stands before a text without a context: the begin token, else an end token, else the first id."""
    tokenizer = model.words.tokenizer
    known = (tokenizer.bos_id, tokenizer.eos_id, *sorted(model.eos_ids))
    return next((one for one in known if one is not None), 0)


def encoded(model: TextModel, text: str, special: bool | None) -> list[int]:
    """Ids of a text, begun as the tokenizer begins texts, unless `special` is false."""
    tokenizer = model.words.tokenizer
    adds = tokenizer.adds_bos and tokenizer.bos_id is not None and special is not False
    ids = tokenizer.encode(text)
    return [tokenizer.bos_id or 0, *ids] if adds and ids[:1] != [tokenizer.bos_id] else ids


def judged(model: TextModel, pairs: Sequence[tuple[list[int], list[int]]]) -> Iterator[Judged]:
    """Judge continuations of contexts, of which the beginning is cut off where they are too long."""
    from kitae.generate.judge import Piece, judge

    most = model.network.config.max_position_embeddings + 1
    pieces = [
        Piece((context + rest)[-most:], min(len(rest), most - 1, len(context) + len(rest) - 1))
        for context, rest in pairs
    ]
    return judge(model.network, pieces)


def rolled(model: TextModel, text: str) -> float:
    """Logarithm of the probability of a whole text, in pieces as long as the model reads."""
    from kitae.generate.judge import judge, pieces_of

    ids = [_begin(model), *encoded(model, text, False)]
    return -sum(
        one.nats for one in judge(model.network, pieces_of(ids, model.network.config.max_position_embeddings))
    )


def answered(model: TextModel, context: str, options: dict[str, Any]) -> str:
    """What follows a context, up to one of the texts to stop at, which is not part of it."""
    from kitae.generate.loop import Wish, continue_prompts
    from kitae.generate.sampling import Sampler
    from kitae.generate.text import TextStream
    from kitae.stages.generating import known_ids

    stops = options.get("until") or []
    stops = [stops] if isinstance(stops, str) else list(stops)
    count = int(options.get("max_gen_toks") or NEW_TOKENS)
    drawn = options.get("do_sample", bool(options.get("temperature")))
    sampler = Sampler(
        float(options.get("temperature") or 1.0) if drawn else 0.0,
        top_k=options.get("top_k") or None,
        top_p=options.get("top_p") or None,
    )
    room = max(1, model.network.config.max_position_embeddings - count)
    ids = (encoded(model, context, None) or [_begin(model)])[-room:]
    stream = TextStream(partial(model.words.tokenizer.decode, special=False), ids, stops)

    def taken(row: int, token: int) -> bool:
        if token not in model.eos_ids:
            stream.push(token)
        return stream.stopped

    wish = Wish(count, model.eos_ids, sampler, known=known_ids(model))
    continue_prompts(model.network, [ids], wish, taken=taken)
    stream.finish()
    return stream.text
