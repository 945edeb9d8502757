"""The three orders of heads where KV heads have copies: what tells them apart, and what does not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from convert_case import HF, converted, left_in, quick
from hf_case import all_tensors, assert_same
from nxd_case import FIXTURE, Cut, cut_rank, everything, fixture_config, fixture_weights, rank_name, write

from kitae.checkpoint.nxd import NxdSource
from kitae.checkpoint.nxd_format import NxdFormat
from kitae.errors import WeightsError

# What was given, how copies lie -> what is read, and a part of why.
TABLE = [
    (None, "trn1", "trn1", "tiled; NxD's converter tiles them for trn2 as well: give the order"),
    ("trn1", "trn1", "trn1", "told from equal copies of KV heads, which are tiled)"),
    ("trn2", "trn2-tiled", "trn2-tiled", "as given, with tiled copies: so NxD's converter writes for trn2"),
    (None, "trn2", "trn2", "told from equal copies of KV heads, on neighbouring ranks"),
    ("trn2", "trn2", "trn2", "told from equal copies of KV heads, on neighbouring ranks"),
]


def saved(folder: Path, cut: Cut, full: dict[str, torch.Tensor] | None = None) -> Path:
    """Rank files cut by hand."""
    return write(folder, cut, fixture_weights() if full is None else full)


@pytest.mark.parametrize("qkv", ["linear", "fused"])
@pytest.mark.parametrize(("tp", "multiplier"), [(4, 2), (8, 4)])
@pytest.mark.parametrize(("given", "lying", "order", "why"), TABLE)
def test_every_order_is_read_right(
    tmp_path: Path,
    given: str | None,
    lying: str,
    order: str,
    why: str,
    tp: int,
    multiplier: int,
    qkv: str,
) -> None:
    """To the bit, from files that were cut by hand, and said with what told it."""
    cut = Cut(tp, 1, multiplier, lying, qkv)
    source = NxdSource(saved(tmp_path, cut), fixture_config(), order=given)
    assert source.format == NxdFormat(tp, 1, multiplier, order, qkv)
    assert f"order {order} (" in source.notes[0]
    assert why in source.notes[0]
    assert_same(everything(source), fixture_weights())
    source.check_replicas()


def test_the_real_converters_files_told_trn2_are_not_the_models() -> None:
    """Tiled as for trn1, the fixture read as trn2 gives other query heads, and only these."""
    source = NxdSource(FIXTURE / "qkv_kv2", fixture_config(), order="trn2")
    full, read = fixture_weights(), everything(source)
    other = {name for name in full if not torch.equal(full[name], read[name])}
    assert other == {f"model.layers.{i}.self_attn.{name}_proj.weight" for i in (0, 1) for name in "qo"}


def test_an_order_that_contradicts_the_copies(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"order trn1 was given, but the copies of KV heads .* as in trn2"):
        converted(saved(tmp_path / "nxd", Cut(order="trn2")), tmp_path / "out", config=HF, order="trn1")
    assert left_in(tmp_path) == ["nxd"]


@pytest.mark.parametrize("given", [None, "trn1", "trn2"])
def test_equal_kv_heads_tell_nothing(tmp_path: Path, given: str | None) -> None:
    """The default is said, and what is given is taken."""
    full = fixture_weights()
    for name in full:
        if "k_proj" in name or "v_proj" in name:
            full[name] = torch.ones_like(full[name])
    source = NxdSource(saved(tmp_path, Cut(order=given or "trn1"), full), fixture_config(), order=given)
    said = "as given" if given else "by default: give the order where it is trn2"
    assert f"order {given or 'trn1'} ({said}; all KV heads are equal" in source.notes[0]
    assert_same(everything(source), full)


def test_copies_that_fit_no_order(tmp_path: Path) -> None:
    """As after training what the converter wrote for trn2: refused with the ranks' names."""
    folder = saved(tmp_path / "nxd", Cut())
    for tp in range(4):
        state = cut_rank(Cut(), fixture_weights(), tp)
        key = "model.layers.0.self_attn.qkv_proj.weight_k"
        torch.save({**state, key: state[key] + tp}, folder / "model" / rank_name(tp))
    source = NxdSource(folder, fixture_config())
    assert "copies of a KV head differ, however they lie, which does not tell it" in source.notes[0]
    with pytest.raises(WeightsError, match=r"k_proj\.weight: the ranks \(tp 0\) and \(tp 2\)"):
        converted(folder, tmp_path / "out", config=HF)


@pytest.mark.parametrize("cut", [Cut(tp=2, multiplier=1), Cut(tp=4, multiplier=4, kv_heads=1)], ids=str)
def test_orders_that_are_the_same(tmp_path: Path, cut: Cut) -> None:
    """Without copies, and with a copy of the one KV head on each rank."""
    full = fixture_weights()
    if cut.kv_heads == 1:
        full = {n: t[:4].clone() if "k_proj" in n or "v_proj" in n else t for n, t in full.items()}
    config = fixture_config(num_key_value_heads=cut.kv_heads)
    for order in ("trn1", "trn2", "trn2-tiled"):
        folder = saved(tmp_path / order, replace(cut, order=order), full)
        for given in (None, "trn1", "trn2"):
            source = NxdSource(folder, config, order=given)
            assert "either order of heads, which are the same here" in source.notes[0]
            assert_same(everything(source), full)


def test_conversion_of_what_the_converter_writes_for_trn2(tmp_path: Path) -> None:
    """Proven but for its ranks, which compute something else; without the order, the trn1 that it seems."""
    folder = saved(tmp_path / "nxd", Cut(order="trn2-tiled"))
    record, said = converted(folder, tmp_path / "out", config=HF, order="trn2")
    assert_same(all_tensors(HF), all_tensors(tmp_path / "out"))
    assert set(record.proof["differences"]) == {"kitae"}
    assert any("what these compute is no part of the proof" in line for line in said)
    record, said = converted(folder, tmp_path / "other", config=HF)
    assert any("give the order where it was told so" in line for line in said)
    # As trn1 it is what its ranks compute together: another model than the one that was converted.
    assert set(record.proof["differences"]) == {"kitae", "the source's NxD ranks"}
    assert not torch.equal(
        all_tensors(tmp_path / "other")["model.layers.0.self_attn.q_proj.weight"],
        all_tensors(HF)["model.layers.0.self_attn.q_proj.weight"],
    )


@pytest.mark.parametrize("qkv", ["linear", "fused"])
def test_what_is_written_for_trn2_is_what_training_loads_right(tmp_path: Path, qkv: str) -> None:
    """Copies beside each other and query heads as they are; said, and proven with the ranks' own logits."""
    fused = True if qkv == "fused" else None
    record, said = converted(HF, tmp_path / "nxd", to="nxd", tp=4, order="trn2", fused_qkv=fused)
    assert any(line.startswith("order trn2: copies of a KV head on neighbours") for line in said)
    assert set(record.proof["differences"]) == {"kitae", "the result's NxD ranks"}
    for tp in range(4):
        due = cut_rank(Cut(order="trn2", qkv=qkv), fixture_weights(), tp)
        assert_same(torch.load(tmp_path / "nxd/model" / rank_name(tp)), due)
    back = quick(tmp_path / "nxd", tmp_path / "out", order="trn2")
    assert_same(all_tensors(HF), all_tensors(back))
