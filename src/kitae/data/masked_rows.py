"""Rows of masked-language training, as transformers' BertForPreTraining takes them.

B rows, S positions, P predictions.
"""

from __future__ import annotations

from dataclasses import dataclass

from kitae.data.rows import IGNORED, PADDING_ID, IntArray, padded


@dataclass(frozen=True)
class MaskedRows:
    """int64 arrays."""

    input_ids: IntArray
    """[B, S] with what is to be predicted hidden."""
    token_type_ids: IntArray
    """[B, S] 1 in the second text of a pair, else 0."""
    lengths: IntArray
    """[B] positions that hold tokens; padding stands behind them."""
    positions: IntArray
    """[B, P] where something is to be predicted; 0 where there is no more."""
    labels: IntArray
    """[B, P] the token that stood there; -100 where there is no more."""
    next_sentence: IntArray
    """[B] 0: the second text follows the first, 1: it is from another document, -100: there is no pair."""

    @property
    def real_tokens(self) -> int:
        """Positions that hold tokens."""
        return int(self.lengths.sum())

    @property
    def counts(self) -> tuple[int, ...]:
        """How many tokens, and how many pairs, are predicted."""
        return int((self.labels != IGNORED).sum()), int((self.next_sentence != IGNORED).sum())

    def part(self, rows: slice) -> MaskedRows:
        """Some of the rows."""
        return MaskedRows(
            self.input_ids[rows],
            self.token_type_ids[rows],
            self.lengths[rows],
            self.positions[rows],
            self.labels[rows],
            self.next_sentence[rows],
        )

    def pad(self, count: int) -> MaskedRows:
        """The rows and fully padded ones behind them, `count` in all: shapes stay static."""
        return MaskedRows(
            padded(self.input_ids, count, PADDING_ID),
            padded(self.token_type_ids, count, 0),
            padded(self.lengths, count, 0),
            padded(self.positions, count, 0),
            padded(self.labels, count, IGNORED),
            padded(self.next_sentence, count, IGNORED),
        )
