"""Texts with labels, as transformers' BertForSequenceClassification takes them. B rows, S positions."""

from __future__ import annotations

from dataclasses import dataclass

from kitae.data.rows import IGNORED, PADDING_ID, IntArray, padded


@dataclass(frozen=True)
class LabelledRows:
    """int64 arrays."""

    input_ids: IntArray
    """[B, S]."""
    token_type_ids: IntArray
    """[B, S] 1 in the second text of a pair, else 0."""
    lengths: IntArray
    """[B] positions that hold tokens; padding stands behind them."""
    labels: IntArray
    """[B] the class of each text; -100 where there is none."""

    @property
    def real_tokens(self) -> int:
        """Positions that hold tokens."""
        return int(self.lengths.sum())

    @property
    def counts(self) -> tuple[int, ...]:
        """How many labels are predicted."""
        return (int((self.labels != IGNORED).sum()),)

    def part(self, rows: slice) -> LabelledRows:
        """Some of the rows."""
        return LabelledRows(
            self.input_ids[rows], self.token_type_ids[rows], self.lengths[rows], self.labels[rows]
        )

    def pad(self, count: int) -> LabelledRows:
        """The rows and fully padded ones behind them, `count` in all: shapes stay static."""
        return LabelledRows(
            padded(self.input_ids, count, PADDING_ID),
            padded(self.token_type_ids, count, 0),
            padded(self.lengths, count, 0),
            padded(self.labels, count, IGNORED),
        )
