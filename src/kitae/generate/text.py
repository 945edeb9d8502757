"""New tokens as text, piece by piece: characters that several tokens make, and texts to stop at."""

from __future__ import annotations

from collections.abc import Callable, Sequence

UNFINISHED = "\N{REPLACEMENT CHARACTER}"
"""How decoders show bytes that are no character, or not yet."""
MOST_UNFINISHED = 3
"""Bytes of a character that can be there without the last one; some decoders show each."""
CONTEXT_TOKENS = 6
"""How many tokens before the new ones they are decoded with: some decoders treat the first one otherwise."""
WINDOW_TOKENS = 24
"""How many are decoded again for each new one at most, where characters are whole now and then."""


class TextStream:
    """The text of one row. `push` gives what can be shown by now, `finish` the rest."""

    def __init__(
        self, decode: Callable[[Sequence[int]], str], prompt: Sequence[int], stops: Sequence[str] = ()
    ) -> None:
        """`prompt` are the ids that come before; the text ends before the first of `stops` that it holds."""
        self._decode = decode
        self._ids = list(prompt[-CONTEXT_TOKENS:])
        self._given = len(decode(self._ids))
        """How many characters of these tokens' text were given out, or are the prompt's."""
        self._stops = stops
        self._held = ""
        """What may be the beginning of a stop text."""
        self.text = ""
        """All that was shown."""
        self.stopped = False

    def push(self, token: int) -> str:
        """Take a token; the text that is new and certain. `stopped` says whether a stop text was met."""
        if self.stopped:
            return ""
        self._ids.append(token)
        return self._certain(self._decoded())

    def finish(self) -> str:
        """What was held back. Bytes at the end that are no whole character are left out."""
        rest = "" if self.stopped else self._held + self._fresh().rstrip(UNFINISHED)
        self._held = ""
        for stop in self._stops:
            place = rest.find(stop)
            if place >= 0:
                rest, self.stopped = rest[:place], True
        self.text += rest
        return rest

    def _fresh(self) -> str:
        """Text of the tokens that was not given out yet."""
        return self._decode(self._ids)[self._given :]

    def _decoded(self) -> str:
        """The same without what may be the beginning of a character; it is given out with this."""
        fresh = self._fresh()
        unfinished = min(len(fresh) - len(fresh.rstrip(UNFINISHED)), MOST_UNFINISHED)
        whole = fresh[: len(fresh) - unfinished]
        self._given += len(whole)
        if not unfinished and len(self._ids) > WINDOW_TOKENS:
            self._ids = self._ids[-CONTEXT_TOKENS:]
            self._given = len(self._decode(self._ids))
        return whole

    def _certain(self, fresh: str) -> str:
        """Without a stop text and all behind it, and without what may yet become one."""
        known = self._held + fresh
        places = [place for stop in self._stops if (place := known.find(stop)) >= 0]
        if places:
            self.stopped, self._held = True, ""
            certain = known[: min(places)]
        else:
            size = max((_overlap(known, stop) for stop in self._stops), default=0)
            certain, self._held = known[: len(known) - size], known[len(known) - size :]
        self.text += certain
        return certain


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of a text are the beginning of `stop`."""
    longest = min(len(stop) - 1, len(text))
    return next((size for size in range(longest, 0, -1) if text.endswith(stop[:size])), 0)
