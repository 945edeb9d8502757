import math

import numpy as np
import pytest
import torch
from encoder_case import CLASSES, Labelled, Masked, config_of, encoder_job, tiny_encoder
from ranks import run_ranks
from tiny_training import CPU

from kitae.checkpoint.live import LiveSource
from kitae.data.examples import Sample
from kitae.data.labelled_rows import LabelledRows
from kitae.data.masked_rows import MaskedRows
from kitae.data.rows import IGNORED
from kitae.recipe.schema import Recipe
from kitae.train.batch import global_batch
from kitae.train.build import OBJECTIVES, build_stepper
from kitae.train.evaluate import evaluate
from kitae.train.loop import train
from kitae.train.metrics import read_records

KINDS = {"masked-lm": Masked, "classification": Labelled}


def samples(*numbers, epoch=0):
    return [Sample(number, epoch) for number in numbers]


def parts(objective, rows, chosen, size=None, mesh=None):
    return global_batch(rows, chosen, size or len(chosen), CPU, mesh, objective.tensors)


def theirs(kind, encoder, **options):
    """The same model in transformers."""
    import transformers

    config = transformers.BertConfig(**{**config_of(kind), "num_labels": CLASSES})
    model = getattr(transformers, config_of(kind)["architectures"][0])(config).eval()
    source = LiveSource(dict(encoder.named_parameters()), encoder.layouts)
    state = {name: source.read(name) for name in source.tensors()}
    missing, unknown = model.load_state_dict(state, strict=False)
    assert not unknown
    assert all(name.startswith("cls.predictions.decoder") or "position_ids" in name for name in missing)
    model.tie_weights()
    return model


def test_masked_loss_is_that_of_transformers():
    """Labels stand only at masked places, and the two means are added."""
    encoder = tiny_encoder("masked-lm")
    objective = OBJECTIVES["masked-lm"](encoder)
    rows = Masked(9).read(samples(*range(6)))
    batch = parts(objective, Masked(9), samples(*range(6)))
    labels = np.full_like(rows.input_ids, IGNORED)
    for row, (places, wanted) in enumerate(zip(rows.positions, rows.labels, strict=True)):
        labels[row, places[wanted != IGNORED]] = wanted[wanted != IGNORED]
    mask = np.arange(rows.input_ids.shape[1]) < rows.lengths[:, None]
    output = theirs("masked-lm", encoder)(
        input_ids=torch.from_numpy(rows.input_ids),
        token_type_ids=torch.from_numpy(rows.token_type_ids),
        attention_mask=torch.from_numpy(mask.astype(np.int64)),
        labels=torch.from_numpy(labels),
        next_sentence_label=torch.from_numpy(rows.next_sentence),
    )
    ours = objective.loss(batch.micro_batches[0], batch.counts, 1)
    assert batch.counts == (int((labels != IGNORED).sum()), 6)
    assert ours.item() == pytest.approx(output.loss.item(), abs=1e-5)


def test_class_loss_is_that_of_transformers():
    encoder = tiny_encoder("classification")
    objective = OBJECTIVES["classification"](encoder)
    rows = Labelled(9).read(samples(*range(6)))
    mask = np.arange(rows.input_ids.shape[1]) < rows.lengths[:, None]
    output = theirs("classification", encoder)(
        input_ids=torch.from_numpy(rows.input_ids),
        attention_mask=torch.from_numpy(mask.astype(np.int64)),
        labels=torch.from_numpy(rows.labels),
    )
    batch = parts(objective, Labelled(9), samples(*range(6)))
    assert objective.loss(batch.micro_batches[0], batch.counts, 1).item() == pytest.approx(
        output.loss.item(), abs=1e-5
    )


def gradients(kind, size, chosen, mesh=None, dropout=0.3, folder=None):
    job = encoder_job(folder, kind, mesh, dropout=dropout)
    stepper = build_stepper(job, job.phases[0])
    batch = parts(stepper.objective, KINDS[kind](24), chosen, size, mesh)
    found = stepper.gradients(batch, step=3)
    return math.fsum(loss.item() for loss in found.losses), found.norm.item()


@pytest.mark.parametrize("kind", KINDS)
def test_the_cut_of_the_batch_changes_nothing_with_dropout(kind, tmp_path):
    """Pain 1, with random draws: what is dropped depends on the row, not on the micro-batch."""
    chosen = samples(3, 5, 8, 13, 21, 2)
    whole = gradients(kind, 6, chosen, folder=tmp_path)
    assert whole != gradients(kind, 6, chosen, dropout=0.0, folder=tmp_path)
    for size in (1, 2, 4):
        cut = gradients(kind, size, chosen, folder=tmp_path)
        assert cut == pytest.approx(whole, abs=2e-6)


def sums(mesh, kind, folder):
    from kitae.parallel.mesh import sum_over_copies

    loss, norm = gradients(kind, 2, samples(3, 5, 8, 13, 21, 2, 7, 9), mesh, folder=folder)
    return float(sum_over_copies(mesh, torch.tensor([loss], dtype=torch.float64))), norm


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("ranks", "tp_size"), [(2, 1), (2, 2), (4, 2), (4, 4)])
def test_ranks_together_are_as_one(kind, ranks, tp_size, tmp_path):
    whole = gradients(kind, 2, samples(3, 5, 8, 13, 21, 2, 7, 9), folder=tmp_path)
    for found in run_ranks(ranks, sums, kind, tmp_path, tp_size=tp_size):
        assert found == pytest.approx(whole, rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("precision", ["fp32", "bf16", "autocast"])
def test_fully_padded_rows_give_a_finite_loss_and_no_gradient(kind, precision, tmp_path):
    """T47 and pain 8."""
    job = encoder_job(
        tmp_path,
        kind,
        training={"duration": "1 steps", "global_batch_size": 2, "precision": precision},
    )
    stepper = build_stepper(job, job.phases[0])

    class Empty:
        sequence_length = 12

        def read(self, chosen):
            return KINDS[kind](4).read(samples(0)).part(slice(0, 0)).pad(len(chosen))

    batch = parts(stepper.objective, Empty(), samples(0, 1))
    found = stepper.gradients(batch)
    assert [loss.item() for loss in found.losses] == [0.0]
    assert found.norm.item() == 0.0


class Known:
    """Rows whose labels are given."""

    sequence_length = 12

    def __init__(self, labels):
        self.labels = labels

    def __len__(self):
        return len(self.labels)

    def read(self, chosen):
        rows = Labelled(len(self)).read(chosen)
        labels = np.array([self.labels[sample.number] for sample in chosen], np.int64)
        return LabelledRows(rows.input_ids, rows.token_type_ids, rows.lengths, labels)


def evaluated(mesh, labels):
    from kitae.backend.table import select

    objective = OBJECTIVES["classification"](tiny_encoder("classification", mesh=mesh))
    found = evaluate(objective, Known(labels), micro_batch_size=2, backend=select("cpu"), mesh=mesh)
    return found.loss, found.metrics, found.scores[2].tolist()


def test_each_text_counts_once_on_any_number_of_ranks():
    """T20: five texts on two copies; accuracy, F1 and confusion matrix as counted by hand."""
    from kitae.parallel.mesh import Mesh

    labels = [0, 1, 2, 1, 0]
    loss, metrics, predicted = evaluated(Mesh(), labels)
    right = sum(one == other for one, other in zip(labels, predicted, strict=True))
    assert metrics["accuracy"] == right / 5
    assert sum(map(sum, metrics["confusion_matrix"])) == 5
    for label in range(CLASSES):
        assert sum(metrics["confusion_matrix"][label]) == labels.count(label)
        both = labels.count(label) + predicted.count(float(label))
        hits = sum(one == other == label for one, other in zip(labels, predicted, strict=True))
        assert metrics["f1"][label] == (2 * hits / both if both else 0)
    assert metrics["f1_macro"] == pytest.approx(sum(metrics["f1"]) / CLASSES)
    for tp_size in (1, 2):
        for found in run_ranks(2 * tp_size, evaluated, labels, tp_size=tp_size):
            assert found[0] == pytest.approx(loss, rel=1e-6)
            assert found[1:] == (metrics, predicted)


def test_masked_evaluation_counts_tokens_and_pairs():
    from kitae.backend.table import select

    objective = OBJECTIVES["masked-lm"](tiny_encoder("masked-lm"))
    found = evaluate(objective, Masked(7), micro_batch_size=3, backend=select("cpu"))
    rows: MaskedRows = Masked(7).read(samples(*range(7)))
    assert found.row_tokens.tolist() == (rows.labels != IGNORED).sum(1).tolist()
    assert set(found.metrics) == {
        "perplexity",
        "masked_accuracy",
        "next_sentence_loss",
        "next_sentence_accuracy",
    }
    assert found.metrics["perplexity"] == pytest.approx(math.exp(found.loss))
    alone = OBJECTIVES["masked-lm"](tiny_encoder("mlm-alone"))
    without = evaluate(alone, Masked(7, pairs=False), micro_batch_size=3, backend=select("cpu"))
    assert set(without.metrics) == {"perplexity", "masked_accuracy"}


@pytest.mark.parametrize("kind", KINDS)
def test_the_loop_teaches(kind, tmp_path):
    training = {"duration": "60 steps", "global_batch_size": 8, "micro_batch_size": 4}
    job = encoder_job(
        tmp_path, kind, training=training, optimizer={"learning_rate": 1e-2}, schedule={"kind": "linear"}
    )
    results = train(job).results
    assert results["objective"] == kind
    assert results["heldout"]["loss_after"] < 0.9 * results["heldout"]["loss_before"]
    last = [one for one in read_records(job.folder / "metrics.jsonl") if one["kind"] == "evaluation"][-1]
    if kind == "classification":
        assert results["heldout"]["accuracy_after"] == last["accuracy"] > 0.5
        assert (last["texts"], last["rows"]) == (7, 7)
    else:
        assert results["heldout"]["unigram_loss"] > 0
        assert last["tokens"] == int(evaluation_tokens())


def evaluation_tokens():
    return (Masked(7).read(samples(*range(7))).labels != IGNORED).sum()


def test_a_recipe_names_its_objective():
    assert Recipe.model_fields["objective"].annotation.__args__ == tuple(OBJECTIVES)


def losses_of(mesh, folder, keep):
    job = encoder_job(
        folder,
        "classification",
        mesh,
        dropout=0.1,
        training={"duration": "2 epochs", "global_batch_size": 4, "micro_batch_size": 2},
        parallel={"data_parallel_size": mesh.data.size, "keep_global_batch": keep},
    )
    train(job)
    records = list(read_records(folder / "run" / "metrics.jsonl"))
    return [record["loss"] for record in records if record["kind"] == "train"]


@pytest.mark.parametrize("keep", [True, False])
def test_two_copies_halve_the_steps_or_keep_the_losses(keep, tmp_path):
    """Procedure C: 24 texts, two epochs; copies that each bring a whole batch make half as many updates."""
    from kitae.parallel.mesh import Mesh

    alone = losses_of(Mesh(), tmp_path / "one", keep)
    (together, _) = run_ranks(2, losses_of, tmp_path / "two", keep)
    assert len(alone) == 12
    if keep:
        assert together == pytest.approx(alone, abs=1e-5)
    else:
        assert len(together) == 6
        assert together[0] != alone[0]
