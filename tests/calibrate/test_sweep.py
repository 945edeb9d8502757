"""Pieces of an update are run as they are counted, and a small sweep explains what it measured."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from calibrated import FOUND

from kitae.calibrate import pieces, shapes, sweep
from kitae.calibrate.ranks import SIZES, collective_speed
from kitae.calibrate.storage import measure_storage
from kitae.calibrate.trial import Trial
from kitae.cli.main import main
from kitae.parallel.mesh import Mesh
from kitae.plan.calibration import save
from kitae.plan.fitting import seconds_of
from kitae.plan.identity import identity
from kitae.plan.parts import body, update_counts

DTYPES = [torch.float32, torch.bfloat16]


@pytest.fixture(autouse=True)
def few_tries(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sweep, "PIECE_S", 0.0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_piece_runs_and_counts_something(dtype: torch.dtype):
    made = [
        pieces.linear(8, 16, 24, dtype),
        pieces.causal(2, 16, 4, 2, 8, dtype),
        pieces.whole(2, 16, 2, 8, False, dtype),
        pieces.whole(2, 16, 2, 8, True, dtype),
        pieces.loss(8, 32, 16, dtype),
        pieces.embedding(8, 32, 16, dtype),
    ]
    for counts, run in made:
        run()
        assert all(count > 0 for count in counts.values())


@pytest.mark.parametrize("precision", ["fp32", "bf16", "bf16-sr", "autocast"])
def test_stretches_of_an_update_run_again_and_again(precision: str):
    works = (
        shapes.decoder(32, 48, 1, 2, 1, 2, 16, precision=precision),
        shapes.encoder(32, 48, 1, 2, 2, 16, 0.1, precision=precision, optimizer="lamb"),
    )
    for work in works:
        trial = Trial(work)
        for run in (trial.body, trial.body, trial.finish, trial.finish, trial.update, trial.update):
            run()
        assert set(body(work)) <= set(update_counts(work))


def test_a_sweep_has_every_constant_of_an_update(monkeypatch: pytest.MonkeyPatch):
    tiny = {
        "PRODUCTS": ((8, 16, 24), (32, 16, 16)),
        "CAUSAL": ((1, 16, 2, 1, 8),),
        "WHOLE": ((1, 16, 2, 8),),
        "VOCABULARY": ((8, 32, 16),),
        "EMBEDDING": ((8, 32, 16),),
        "DECODERS": ((32, 48, 1, 2, 1, 2, 16), (32, 48, 2, 2, 1, 2, 16)),
        "ENCODERS": ((32, 48, 1, 2, 2, 16, 0.1),),
        "OPTIMIZED": ((64, 48, 1, 64),),
    }
    for name, value in tiny.items():
        monkeypatch.setattr(shapes, name, value)
    monkeypatch.setattr(sweep, "PRODUCTS", tiny["PRODUCTS"])
    said: list[str] = []
    speeds, products = sweep.sweeps(Mesh(), said.append, ("bf16", "autocast"))
    assert [one.precision for one in speeds] == ["bf16", "autocast"]
    assert [one.tokens for one in products] == [8, 32]
    for one in speeds:
        work = shapes.decoder(32, 48, 2, 2, 1, 2, 16, precision=one.precision)
        counts = update_counts(work)
        assert set(counts) <= set(one.constants)
        assert 0 < seconds_of(counts, one.constants) < 60
    assert "rounding.number" in speeds[0].constants
    assert said[0] == "bf16, 1 threads: products"


def test_a_collective_is_a_floor_and_a_bandwidth():
    floor, bandwidth = collective_speed(lambda size: 1e-3 + (0 if size == SIZES[0] else size / 2e9))
    assert floor == 1e-3
    assert bandwidth == pytest.approx(2e9)


def test_disk_and_hash_have_speeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("kitae.calibrate.storage.LARGE", 16 << 20)
    found = measure_storage(tmp_path / "state")
    assert all(value > 0 for value in found.values())
    assert list((tmp_path / "state").iterdir()) == []


def test_the_verb_shows_what_is_kept_and_an_interrupt_leaves_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    monkeypatch.setenv("KITAE_STATE", str(tmp_path))
    assert main(["calibrate", "--show"]) == 1
    assert "run kitae calibrate" in capsys.readouterr().err
    path = save(replace(FOUND, machine=identity()))
    before = path.read_bytes()
    assert main(["calibrate", "--show"]) == 0
    out = capsys.readouterr().out
    for text in ("512 x 256 x 256", "400", "SHA-256", "1.80 GB/s", "200 us + bytes / 3.00 GB/s"):
        assert text in out
    assert main(["calibrate", "--show", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["memory_bytes_per_s"] == 3e10

    def interrupted(say: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("kitae.calibrate.measure.calibrate", interrupted)
    assert main(["calibrate"]) == 130
    assert path.read_bytes() == before
