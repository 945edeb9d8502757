"""Numbers that tell how good predictions are, as pure functions of counts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
Confusion = NDArray[np.int64]


def confusion_matrix(labels: FloatArray, predicted: FloatArray, classes: int) -> Confusion:
    """How often each class [rows] was taken for which one [columns], [C, C]."""
    matrix = np.zeros((classes, classes), np.int64)
    np.add.at(matrix, (labels.astype(np.int64), predicted.astype(np.int64)), 1)
    return matrix


def accuracy(matrix: Confusion) -> float:
    """Share of predictions that are right; 0 when there are none."""
    return float(np.trace(matrix) / max(1, matrix.sum()))


def f1_scores(matrix: Confusion) -> list[float]:
    """F1 of each class: 2 TP / (2 TP + FP + FN); 0 for one that neither stands there nor is predicted."""
    right = np.diag(matrix)
    touched = matrix.sum(0) + matrix.sum(1)
    return [float(2 * tp / max(1, both)) for tp, both in zip(right, touched, strict=True)]


def share(part: float, whole: float) -> float:
    """`part / whole`; 0 of nothing is 0."""
    return part / whole if whole else 0.0
