"""Conversions from and to neuronx-distributed, and what the flags about it may say."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
import torch
from convert_case import HF, STEP, converted, left_in, quick, training, with_tokenizer
from hf_case import all_tensors, assert_same, edit_json, hf_folder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from job_case import kitae
from nxd_case import FIXTURE, Cut, change, everything, fixture_config, fixture_weights, mark, rank_name, write

from kitae.checkpoint.nxd import NxdSource
from kitae.checkpoint.nxd_layout import nxd_layouts
from kitae.checkpoint.opened import open_weights
from kitae.checkpoint.resume import find_checkpoint
from kitae.errors import ProofError, RecipeError, WeightsError

REAL = ["qkv_kv2", "qkv_kv2_xser", "qkv_kv2_nxd_xser", "noqkv_tp2"]


@pytest.mark.parametrize("name", REAL)
def test_what_the_real_tools_wrote(tmp_path, name):
    """To the bit, with the ranks' own logits equal to transformers'."""
    record, said = converted(FIXTURE / name, tmp_path / "out", config=HF)
    assert_same(all_tensors(HF), all_tensors(tmp_path / "out"))
    assert set(record.proof["differences"]) == {"kitae", "the source's NxD ranks"}
    assert record.proof["max_difference"] < 1e-6
    assert "; copies on several ranks are equal" in "".join(said)


CUTS = [
    {"tp": 4},
    {"tp": 8, "order": "trn2"},
    {"tp": 4, "fused_qkv": True, "xser": True},
    {"tp": 2, "pp": 2},
    {"tp": 2, "kv_multiplier": 1, "pp": 2},
    {"tp": 1, "fused_qkv": True},
]


@pytest.mark.parametrize("cut", CUTS, ids=str)
def test_there_and_back(tmp_path, cut):
    record, _ = converted(HF, tmp_path / "nxd", to="nxd", **cut)
    assert set(record.proof["differences"]) == {"kitae", "the result's NxD ranks"}
    # The result carries its config.json, so nothing has to be named on the way back.
    quick(tmp_path / "nxd", tmp_path / "out")
    assert_same(all_tensors(HF), all_tensors(tmp_path / "out"))


def test_the_written_ranks_are_the_real_tools(tmp_path):
    """Names, shapes and values of every rank's file."""
    quick(HF, tmp_path / "nxd", to="nxd", tp=4)
    for path in sorted((FIXTURE / "qkv_kv2/model").iterdir()):
        due, found = torch.load(path), torch.load(tmp_path / "nxd/model" / path.name)
        assert_same(due, found)
        assert list(due) == list(found)


def test_from_one_cut_to_another(tmp_path):
    _, said = converted(FIXTURE / "qkv_kv2", tmp_path / "two", to="nxd", tp=2, pp=2, config=HF)
    quick(tmp_path / "two", tmp_path / "out")
    assert_same(all_tensors(HF), all_tensors(tmp_path / "out"))
    assert any(line.startswith("kv-multiplier 1: 2 KV heads on 2 ranks") for line in said)


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kv=st.sampled_from([1, 2, 4]),
    group=st.sampled_from([1, 2, 4]),
    tp=st.sampled_from([1, 2, 3, 4, 8]),
    pp=st.integers(1, 3),
    multiplier=st.sampled_from([None, None, 1, 2, 4]),
    order=st.sampled_from(["trn1", "trn2"]),
    fused=st.booleans(),
    xser=st.booleans(),
    tied=st.booleans(),
)
def test_any_cut_that_is_allowed(tmp_path_factory, kv, group, tp, pp, multiplier, order, fused, xser, tied):
    """Property: Hugging Face to NxD and back is equal to the bit, or refused with the rule."""
    tmp = tmp_path_factory.mktemp("cut")
    heads = {"num_attention_heads": kv * group, "num_key_value_heads": kv, "head_dim": 4}
    folder = hf_folder(tmp / "model", vocab_size=24, tie_word_embeddings=tied, **heads)
    options = {"tp": tp, "pp": pp, "order": order, "fused_qkv": fused or None, "xser": xser or None}
    options["kv_multiplier"] = multiplier
    rules = {
        "each rank holds whole": bool((kv * group) % tp or (kv % tp and tp % kv)),
        "KV heads x kv_multiplier is tp_size": multiplier not in (None, max(1, tp // kv)),
        "each pipeline stage has a layer": pp > 2,
    }
    broken = [rule for rule, is_broken in rules.items() if is_broken]
    if broken:
        with pytest.raises(WeightsError, match=f"the NxD format does not allow it: {broken[0]}"):
            quick(folder, tmp / "nxd", to="nxd", **options)
        assert left_in(tmp) == ["model"]
        return
    quick(folder, tmp / "nxd", to="nxd", **options)
    quick(tmp / "nxd", tmp / "out")
    assert_same(all_tensors(folder), all_tensors(tmp / "out"))


def test_a_tokenizer_goes_along_and_comes_back(tmp_path):
    folder = with_tokenizer(hf_folder(tmp_path / "model", vocab_size=400))
    quick(quick(folder, tmp_path / "nxd", to="nxd", tp=2), tmp_path / "out")
    assert (tmp_path / "out/tokenizer.json").read_bytes() == (folder / "tokenizer.json").read_bytes()


@pytest.mark.parametrize(
    ("flags", "match"),
    [
        ({"tp": 8}, "--tp 8, but the files in .*qkv_kv2 say 4"),
        ({"pp": 2}, "--pp 2, but the files in .*qkv_kv2 say 1"),
        ({"kv_multiplier": 4}, "--kv-multiplier 4, but the files in .*qkv_kv2 say 2"),
        ({"fused_qkv": True}, "--fused-qkv, but the files in .*qkv_kv2 have no fused-qkv"),
        ({"xser": True}, "--xser, but the files in .*qkv_kv2 have no xser"),
    ],
)
def test_flags_that_contradict_the_files(tmp_path, flags, match):
    with pytest.raises(RecipeError, match=match):
        converted(FIXTURE / "qkv_kv2", tmp_path / "out", config=HF, **flags)


def test_flags_that_agree(tmp_path):
    flags = {"tp": 4, "pp": 1, "kv_multiplier": 2, "order": "trn1", "xser": True}
    quick(FIXTURE / "qkv_kv2_nxd_xser", tmp_path / "out", config=HF, **flags)


def test_what_has_to_be_said(tmp_path):
    with pytest.raises(
        RecipeError, match=r"already: say what it is to become, --to nxd --tp N or --to kitae"
    ):
        converted(HF, tmp_path / "out")
    with pytest.raises(RecipeError, match=r"--to nxd needs --tp.*8 query heads allow 1, 2, 4, 8"):
        converted(HF, tmp_path / "out", to="nxd")
    with pytest.raises(WeightsError, match=r"carries no config\.json.*--config FILE"):
        converted(FIXTURE / "qkv_kv2", tmp_path / "out")
    _, said = converted(HF, tmp_path / "out", tp=4, proof="none")
    assert "to nxd: because of --tp" in said


def test_derived_values_are_said_with_their_reason(tmp_path):
    _, said = converted(HF, tmp_path / "out", to="nxd", tp=4, dry_run=True)
    assert "kv-multiplier 2: 2 KV heads on 4 ranks" in said
    assert any(line.startswith("order trn1: ") for line in said)
    assert "qkv linear: 2 KV heads on 4 ranks need copies" in said
    _, said = converted(HF, tmp_path / "out", to="nxd", tp=2, dry_run=True)
    assert any(line.startswith("qkv separate: 2 KV heads on 2 ranks need no copies") for line in said)
    assert not any(line.startswith("order") for line in said)


def test_a_rule_of_the_format(tmp_path):
    with pytest.raises(WeightsError, match="2 x 1 with tp_size 4 is neither; choose kv_multiplier 2"):
        converted(HF, tmp_path / "out", to="nxd", tp=4, kv_multiplier=1)
    assert left_in(tmp_path) == []


@pytest.mark.parametrize("target", ["hf", "nxd", "kitae"])
def test_copies_that_differ_are_named_and_nothing_is_there(tmp_path, target):
    """T04 and row 5 of the pains: never averaged."""
    source = write(tmp_path / "nxd", Cut(), fixture_weights())
    path = source / "model" / rank_name(3)
    change(path, **{"layers.1.self_attn.qkv_proj.weight_v": torch.ones(4, 32, dtype=torch.bfloat16)})
    with pytest.raises(WeightsError, match=r"layers\.1\.self_attn\.v_proj.*tp [13].*tp [13]"):
        converted(source, tmp_path / "out", to=target, config=HF, **({"tp": 2} if target == "nxd" else {}))
    assert left_in(tmp_path) == ["nxd"]


def _swapped(config, tied, format):
    """A wrong table: ranks 1 and 2 are taken to hold each other's query heads."""
    table = nxd_layouts(config, tied, format)

    def wrong(tp_rank, pp_rank):
        other = {1: 2, 2: 1}.get(tp_rank, tp_rank)
        query = ("weight_q", "o_proj.weight")
        return [
            theirs if own.name.endswith(query) else own
            for own, theirs in zip(table(tp_rank, pp_rank), table(other, pp_rank), strict=True)
        ]

    return wrong


def test_a_wrong_order_of_heads_that_cancels_in_the_round_trip_fails_the_proof(tmp_path, monkeypatch):
    """T05: to NxD and back gives the same bits, but the ranks compute something else."""
    for module in ("nxd", "convert_targets"):
        monkeypatch.setattr(f"kitae.checkpoint.{module}.nxd_layouts", _swapped)
    quick(quick(HF, tmp_path / "nxd", to="nxd", tp=4), tmp_path / "out")
    assert_same(all_tensors(HF), all_tensors(tmp_path / "out"))
    with pytest.raises(ProofError, match="the result's NxD ranks and of transformers differ"):
        converted(HF, tmp_path / "two", to="nxd", tp=4)
    with pytest.raises(ProofError, match="the source's NxD ranks and of transformers differ"):
        converted(FIXTURE / "qkv_kv2", tmp_path / "three", config=HF)
    assert left_in(tmp_path) == ["nxd", "out"]


@pytest.mark.parametrize("masters", [False, True])
def test_a_training_checkpoint_with_its_optimizer(tmp_path, masters):
    states = training(tmp_path / "run/step_7", Cut(), masters=masters)
    mark(tmp_path / "run/step_7")
    record, said = converted(tmp_path / "run", tmp_path / "kitae", to="kitae", config=HF)
    checkpoint = find_checkpoint(tmp_path / "kitae")
    assert checkpoint.step == checkpoint.state["step"] == STEP
    for kind in ("exp_avg", "exp_avg_sq"):
        assert_same(states[kind], everything(checkpoint.source(kind)))
    weights = states["weights"] if masters else fixture_weights()
    assert_same(weights, everything(checkpoint.source("weights")))
    assert any("exp_avg and exp_avg_sq after 7 updates" in line for line in said)
    assert any(line.startswith("weights: the optimizer's fp32 masters") for line in said) == masters
    assert record.proof["tensors"] == 3 * 21


def test_optimizer_state_is_left_behind_elsewhere(tmp_path):
    training(tmp_path / "nxd", Cut())
    _, said = converted(tmp_path / "nxd", tmp_path / "out", config=HF)
    assert "the optimizer's state is left behind: only --to kitae takes it along" in said


def _pop_state(path):
    value = torch.load(path)
    value["base_state"].pop(3)
    torch.save(value, path)


DAMAGES = {
    "a parameter's state is missing": (_pop_state, "has state for 18 parameters, its groups have 19"),
    "a file is missing": (Path.unlink, r"1 rank files beside the 3 found are missing: those of \(tp 1\)"),
    "a file is cut off": (lambda path: os.truncate(path, 900), "is cut off .900 bytes are there."),
    "a file is something else": (lambda path: path.write_text("?"), "is no archive of torch.save"),
    "a file is a link to nowhere": (lambda path: (path.unlink(), path.symlink_to("x")), "is missing"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_optimizer_state_that_is_broken_stops_only_where_it_is_wanted(tmp_path, damage, capsys):
    """Not where weights alone are; `kitae weights` says it in a note."""
    training(tmp_path / "nxd", Cut())
    harm, message = DAMAGES[damage]
    harm(tmp_path / "nxd/optim" / rank_name(1))
    quick(tmp_path / "nxd", tmp_path / "out", config=HF)
    assert_same(all_tensors(HF), all_tensors(tmp_path / "out"))
    with pytest.raises(WeightsError, match=message):
        converted(tmp_path / "nxd", tmp_path / "kitae", to="kitae", config=HF)
    assert left_in(tmp_path) == ["nxd", "out"]
    assert kitae("weights", tmp_path / "nxd", "--config", HF) == 0
    assert re.search(f"note: its optimizer state cannot be read: .*{message}", capsys.readouterr().out)


def test_an_unfinished_save_is_refused(tmp_path):
    mark(write(tmp_path / "run/step_9", Cut(), fixture_weights()), done=False)
    with pytest.raises(WeightsError, match="no save was finished"):
        converted(tmp_path / "run", tmp_path / "out", config=HF)


def test_the_result_reads_as_nxd_says(tmp_path):
    quick(HF, tmp_path / "nxd", to="nxd", tp=4, xser=True)
    source = NxdSource(tmp_path / "nxd", fixture_config())
    assert (source.format.tp_size, source.format.kv_multiplier, source.format.qkv) == (4, 2, "linear")
    opened = open_weights(tmp_path / "nxd")
    assert opened.xser
    assert json.loads((tmp_path / "nxd/config.json").read_text())["num_key_value_heads"] == 2


def test_a_vocabulary_that_does_not_divide(tmp_path):
    """Row 20 of the pains, T12: NxD does not pad, so it is refused; kitae's own checkpoints need none."""
    folder = hf_folder(tmp_path / "model")
    with pytest.raises(WeightsError, match="vocab_size 99 does not divide by tp_size 2"):
        converted(folder, tmp_path / "out", to="nxd", tp=2)
    quick(quick(folder, tmp_path / "kitae", to="kitae"), tmp_path / "out")
    assert all_tensors(tmp_path / "out")["model.embed_tokens.weight"].shape[0] == 99


def test_rope_that_kitae_does_not_compute(tmp_path):
    """T08: the kind is named, and nothing is written."""
    folder = hf_folder(tmp_path / "model")
    scaling = {"rope_type": "longrope", "long_factor": [1.0] * 4, "short_factor": [1.0] * 4, "factor": 2.0}
    edit_json(folder / "config.json", rope_scaling=scaling, rope_parameters=None)
    with pytest.raises(WeightsError, match="longrope is not supported"):
        converted(folder, tmp_path / "out", to="nxd", tp=1)
    assert left_in(tmp_path) == ["model"]
