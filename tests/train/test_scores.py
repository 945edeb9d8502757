import math

import numpy as np
import pytest

from kitae.train.baseline import unigram_loss
from kitae.train.scores import accuracy, confusion_matrix, f1_scores, share


def test_a_confusion_matrix_by_hand():
    labels, predicted = np.array([0, 0, 1, 1, 1, 2.0]), np.array([0, 1, 1, 1, 0, 1.0])
    matrix = confusion_matrix(labels, predicted, 4)
    assert matrix.tolist() == [[1, 1, 0, 0], [1, 2, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    assert accuracy(matrix) == 0.5
    assert f1_scores(matrix) == [pytest.approx(2 / 4), pytest.approx(4 / 7), 0.0, 0.0]


def test_f1_is_that_of_precision_and_recall():
    matrix = np.array([[50, 10], [5, 35]])
    for label, score in enumerate(f1_scores(matrix)):
        precision = matrix[label, label] / matrix[:, label].sum()
        recall = matrix[label, label] / matrix[label].sum()
        assert score == pytest.approx(2 * precision * recall / (precision + recall))


def test_of_nothing():
    assert accuracy(np.zeros((2, 2), np.int64)) == 0.0
    assert share(0, 0) == 0.0


def test_the_unigram_loss_is_the_cross_entropy_of_frequencies():
    train, heldout = np.array([7, 2, 0]), np.array([1, 1, 2])
    chances = [8 / 12, 3 / 12, 1 / 12]
    due = -(math.log(chances[0]) + math.log(chances[1]) + 2 * math.log(chances[2])) / 4
    assert unigram_loss(train, heldout) == pytest.approx(due)
    assert unigram_loss(train, np.zeros(3, np.int64)) == 0.0
