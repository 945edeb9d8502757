"""How generated text is shown: whole texts or pieces as they come, for a person or as JSON lines."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from kitae.generate.text import TextStream

if TYPE_CHECKING:
    from kitae.generate.loop import Continuation
    from kitae.stages.generating import Request
    from kitae.stages.text_model import TextModel


class Shown:
    """Follows the texts of a request on standard output, and says in the end on standard error how fast."""

    def __init__(self, request: Request, model: TextModel, *, leads: bool) -> None:
        """Of several ranks only the one that `leads` prints; all follow, for a stop text ends them all."""
        from kitae.stages.generating import is_chat

        self._request, self._words, self._leads = request, model.words, leads
        self._chat = is_chat(model.words, request.chat)
        self._eos = model.eos_ids
        self._first = 0
        self._streams: list[TextStream] = []
        self._ids: list[list[int]] = []
        self._pace = Pace()
        self._weights_bytes = model.network.weights.nbytes

    def __enter__(self) -> Shown:
        if self._chat and self._request.chat is None:
            self.note("the prompt is a message, by the tokenizer's chat template (--no-chat: a text)")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None or issubclass(kind, KeyboardInterrupt):
            if kind is not None and self._streams:
                self._interrupted()
            self.note(self._pace.line(self._weights_bytes))

    def begin(self, first: int, prompts: Sequence[Sequence[int]]) -> None:
        """A batch of prompts begins, of which `first` is the number of the first."""
        decode, num = partial(self._words.tokenizer.decode, special=False), self._request.num
        self._first = first
        self._ids = [[] for _ in prompts for _ in range(num)]
        self._streams = [TextStream(decode, ids, self._request.stop) for ids in prompts for _ in range(num)]
        if self._request.stream and not self._request.as_json:
            self._put("" if self._chat else self._request.prompts[first])
        self._pace.begin(len(self._streams))

    def taken(self, row: int, token: int) -> bool:
        """Take a new token of a row; whether a stop text ends it."""
        self._pace.count(row)
        self._ids[row].append(token)
        stream = self._streams[row]
        piece = "" if token in self._eos else stream.push(token)
        if piece and self._request.stream:
            self._piece(row, piece)
        return stream.stopped

    def end(self, found: Sequence[Continuation]) -> None:
        """The rows of the batch have ended."""
        self._pace.end()
        for row, one in enumerate(found):
            self._last(row, one.ended)
        self._streams = []

    def _last(self, row: int, ended: str | None) -> None:
        """A row has ended: what was held back, and the whole."""
        stream, ids = self._streams[row], self._ids[row]
        rest = stream.finish()
        if self._request.stream and rest:
            self._piece(row, rest)
        ended = "stop" if stream.stopped else ended
        self._whole(row, stream.text, {"tokens": len(ids), "ended": ended, "ids": ids})

    def _piece(self, row: int, piece: str) -> None:
        if self._request.as_json:
            self._put(json.dumps({**self._place(row), "piece": piece}, ensure_ascii=False) + "\n")
        else:
            self._put(piece)

    def _whole(self, row: int, text: str, facts: dict[str, Any]) -> None:
        place = self._place(row)
        prompt = self._request.prompts[place["prompt"]]
        if self._request.as_json:
            said = {**place, **({} if self._request.stream else {"input": prompt}), "text": text, **facts}
            self._put(json.dumps(said, ensure_ascii=False))
        elif not self._request.stream:
            if self._request.texts > 1:
                self._put(f"--- prompt {place['prompt'] + 1}, sample {place['sample'] + 1}\n")
            self._put(text if self._chat else prompt + text)
        self._put("\n")

    def _interrupted(self) -> None:
        """Show what is there; rows that had ended before say so."""
        self._pace.end()
        for row, ids in enumerate(self._ids):
            full = "length" if len(ids) == self._request.max_new_tokens else "interrupted"
            self._last(row, "eos" if ids and ids[-1] in self._eos else full)

    def _place(self, row: int) -> dict[str, int]:
        return {"prompt": self._first + row // self._request.num, "sample": row % self._request.num}

    def _put(self, text: str) -> None:
        if self._leads:
            print(text, end="", flush=True)  # which takes a closed standard output, too

    def note(self, line: str) -> None:
        """Say something on standard error, if there is anything to say."""
        if self._leads and line:
            print(line, file=sys.stderr, flush=True)


class Pace:
    """Tokens and seconds; those until a batch's first tokens count apart from those for the others."""

    def __init__(self) -> None:
        self._tokens = self._later = 0
        self._first_s: list[float] = []
        self._later_s = 0.0
        self._begun = self._since = 0.0
        self._rows = self._waiting = 0

    def begin(self, rows: int) -> None:
        """A batch begins."""
        self._begun, self._since, self._rows = time.perf_counter(), 0.0, rows

    def count(self, row: int) -> None:
        """A token of a row is there; the rows' first ones come together, after the prompts."""
        self._tokens += 1
        if not self._since:
            self._since = time.perf_counter()
            self._first_s.append(self._since - self._begun)
            self._waiting = self._rows
        if self._waiting:
            self._waiting -= 1
        else:
            self._later += 1

    def end(self) -> None:
        """The batch is done."""
        if self._since:
            self._later_s += time.perf_counter() - self._since

    def line(self, weights_bytes: int) -> str:
        """For a person, with what the weights take here; empty where nothing was generated."""
        if not self._tokens:
            return ""
        first = sum(self._first_s) / len(self._first_s)
        speed = f", then {self._later / self._later_s:,.1f} tokens/s" if self._later else ""
        weights = f"weights of {weights_bytes / 1e6:,.1f} MB"
        return f"{self._tokens:,} tokens; the first after {first:.2f} s{speed}; {weights}"
