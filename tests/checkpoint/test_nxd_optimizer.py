from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hf_case import assert_same
from nxd_case import (
    FIXTURE,
    Cut,
    State,
    cut_rank,
    everything,
    fixture_config,
    fixture_weights,
    rank_name,
    write,
)

from kitae.checkpoint.nxd import NxdSource
from kitae.checkpoint.nxd_file import open_model_file
from kitae.checkpoint.nxd_moments import RankMoments, parameter_names, rank_moments
from kitae.checkpoint.nxd_optimizer import NxdOptimizer
from kitae.errors import WeightsError
from kitae.parallel.layout import Box

TAG = FIXTURE / "train_ckpt_tp1/step_2"
REAL = rank_name(0)
SHAPES = {"emb": (64, 32), "up": (64, 32), "down": (32, 64), "head": (64, 32)}


@pytest.fixture(scope="module")
def real() -> RankMoments:
    return rank_moments([TAG / "optim" / REAL], open_model_file(TAG / "model" / REAL))


def whole(moments: RankMoments, kind: str, name: str) -> torch.Tensor:
    tensor = moments.kinds[kind][name]
    result = torch.empty(tensor.info.shape)
    tensor.read_into(Box.whole(tensor.info.shape), result)
    return result


def test_fixture_has_moments_of_every_parameter_in_its_shape(real: RankMoments) -> None:
    assert real.step == 2
    assert list(real.kinds) == ["exp_avg", "exp_avg_sq"]
    for tensors in real.kinds.values():
        shapes = {name: (tensor.info.shape, tensor.info.dtype) for name, tensor in tensors.items()}
        assert shapes == {
            **{f"{name}.weight": (shape, torch.float32) for name, shape in SHAPES.items()},
            **{f"norm.{name}": ((32,), torch.float32) for name in ("weight", "bias")},
        }


def test_fixture_values_are_those_of_its_tensor_files(real: RankMoments) -> None:
    """tid 2 i is exp_avg, tid 2 i + 1 exp_avg_sq of parameter i."""
    for i, name in enumerate(
        ["emb.weight", "up.weight", "down.weight", "norm.weight", "norm.bias", "head.weight"]
    ):
        for tid, kind in ((2 * i, "exp_avg"), (2 * i + 1, "exp_avg_sq")):
            stored = torch.load(TAG / "optim" / f"{REAL}.tensors/tensor_{tid}.pt")
            assert torch.equal(whole(real, kind, name), stored)


def test_fixture_proves_the_order_where_it_can(real: RankMoments) -> None:
    """What the two updates did follows from the moments: a norm's weight began at 1, its bias at 0.

    Adam's first update is the rate times the gradient's sign, unless that is hardly larger than eps. So what
    undoing the second leaves is one rate away from where the parameter began. Only the embedding has rows
    without a gradient. `down` is told by its shape; nothing tells `up` and `head`, of one shape, apart.
    """

    def one_rate_away(parameter: str, start: float, moments: str) -> int:
        rate = 1e-3 * (1 - 0.999**2) ** 0.5 / (1 - 0.9**2)
        root = whole(real, "exp_avg_sq", moments).sqrt()
        second = rate * whole(real, "exp_avg", moments) / (root + 1e-6)
        before = open_model_file(TAG / "model" / REAL)[parameter].read() + second
        return int((((before - start).abs() - 1e-3).abs() < 5e-5).sum())

    assert one_rate_away("norm.weight", 1, "norm.weight") >= 28
    assert one_rate_away("norm.bias", 0, "norm.bias") >= 28
    assert one_rate_away("norm.weight", 1, "norm.bias") < 12
    assert one_rate_away("norm.bias", 0, "norm.weight") < 12
    matrices = ("emb.weight", "up.weight", "down.weight", "head.weight")
    unused = {name: int((whole(real, "exp_avg_sq", name) == 0).all(-1).sum()) for name in matrices}
    assert unused == {"emb.weight": 28, "up.weight": 0, "down.weight": 0, "head.weight": 0}


def moments_of(full: State, kind: int) -> State:
    """Values that tell tensor and place: fp32, of the full tensors."""
    return {
        name: torch.arange(tensor.numel()).reshape(tensor.shape) * 1e-3 + 100.0 * i + kind
        for i, (name, tensor) in enumerate(full.items())
    }


def save_optimizer(folder: Path, cut: Cut, dp: int, states: dict[str, State], **more: Any) -> None:
    """ZeRO-1 files as NxD's training script makes them: two groups, rows padded to dp and cut."""
    for tp in range(cut.tp):
        for pp in range(cut.pp):
            local = {kind: cut_rank(cut, state, tp, pp) for kind, state in states.items()}
            plain = [n for n in local["exp_avg"] if "bias" in n or "norm" in n]
            names = [n for n in local["exp_avg"] if n not in plain] + plain
            groups = [
                {"lr": 1e-3, "weight_decay": 0.01, "params": list(range(len(names) - len(plain)))},
                {"lr": 1e-3, "weight_decay": 0.0, "params": list(range(len(names) - len(plain), len(names)))},
            ]
            for rank in range(dp):

                def part(
                    kind: str, name: str, rank: int = rank, local: dict[str, State] = local
                ) -> torch.Tensor:
                    tensor = local[kind][name]
                    padding = torch.full((-len(tensor) % dp, *tensor.shape[1:]), 9e9)
                    return torch.cat([tensor, padding]).chunk(dp)[rank].clone()

                value = {
                    "state": {},
                    "param_groups": groups,
                    "base_state": {
                        i: {"step": 7, **{kind: part(kind, name) for kind in ("exp_avg", "exp_avg_sq")}}
                        for i, name in enumerate(names)
                    },
                    "shape_info": {i: list(local["exp_avg"][name].shape) for i, name in enumerate(names)},
                    **more,
                }
                if "weights" in states:
                    value["sharded_master_weights"] = {
                        i: part("weights", name) for i, name in enumerate(names)
                    }
                (folder / "optim").mkdir(parents=True, exist_ok=True)
                torch.save(value, folder / "optim" / rank_name(tp, pp, rank))


def training(folder: Path, cut: Cut, dp: int, *, masters: bool = False) -> tuple[Path, dict[str, State]]:
    """A training checkpoint, and its state in full tensors."""
    full = fixture_weights()
    states = {"exp_avg": moments_of(full, 1), "exp_avg_sq": moments_of(full, 2)}
    if masters:
        # Below the least bit of bf16, so that they round back.
        states["weights"] = {name: tensor.float() * (1 + 2**-12) for name, tensor in full.items()}
    write(folder, cut, full)
    save_optimizer(folder, cut, dp, states)
    return folder, states


def open_optimizer(folder: Path) -> NxdOptimizer:
    return NxdOptimizer(NxdSource(folder, fixture_config()))


@pytest.mark.parametrize("dp", [1, 2, 3, 5])
@pytest.mark.parametrize(
    "cut",
    [Cut(tp=1, multiplier=1), Cut(pp=2), Cut(qkv="fused"), Cut(order="trn2", qkv="fused", pp=2)],
    ids=str,
)
def test_shards_of_any_topology(tmp_path: Path, cut: Cut, dp: int) -> None:
    folder, states = training(tmp_path / "step_7", cut, dp)
    optimizer = open_optimizer(folder)
    assert optimizer.step == 7
    assert list(optimizer.sources) == ["exp_avg", "exp_avg_sq"]
    for kind, source in optimizer.sources.items():
        assert_same(everything(source), states[kind])
    optimizer.check_replicas()
    assert optimizer.notes == [f"optimizer state of {dp} data-parallel ranks after 7 updates"]


def test_masters(tmp_path: Path) -> None:
    folder, states = training(tmp_path, Cut(), 3, masters=True)
    assert_same(everything(open_optimizer(folder).sources["weights"]), states["weights"])


def test_masters_prove_the_order(tmp_path: Path) -> None:
    """K and V have one shape: saved in another order, only the masters show it."""
    folder, states = training(tmp_path, Cut(), 2, masters=True)
    names = {
        name: name.replace("k_proj", "?").replace("v_proj", "k_proj").replace("?", "v_proj")
        for name in states["weights"]
    }
    swapped = {kind: {name: state[names[name]] for name in state} for kind, state in states.items()}
    save_optimizer(folder, Cut(), 2, swapped)
    with pytest.raises(WeightsError, match=r"masters of 4 tensors do not round .*k_proj"):
        open_optimizer(folder)


def test_any_rows_of_a_shard(tmp_path: Path) -> None:
    folder, states = training(tmp_path, Cut(tp=1, multiplier=1), 5)
    source = open_optimizer(folder).sources["exp_avg"]
    for start in (0, 5, 6, 31):
        for rows in (0, 1, 8, 33):
            box = Box((start, 3), (rows, 7))
            whole = states["exp_avg"]["lm_head.weight"]
            assert torch.equal(source.read("lm_head.weight", box), whole[box.slices()])


def test_copies_of_moments_that_differ(tmp_path: Path) -> None:
    folder, _ = training(tmp_path, Cut(), 2)
    edit(folder, lambda state: state["base_state"][2]["exp_avg"].add_(1), rank_name(2, dp=1))
    with pytest.raises(WeightsError, match=r"k_proj\.weight: the ranks \(tp 0\) and \(tp 2\)"):
        open_optimizer(folder).check_replicas()


def edit(folder: Path, change: Callable[[dict[str, Any]], object], name: str = REAL) -> None:
    path = folder / "optim" / name
    state = torch.load(path)
    change(state)
    torch.save(state, path)


def test_optimizer_without_zero(tmp_path: Path) -> None:
    """Whole tensors in one file, under torch's own name, with the step as a tensor."""
    folder, states = training(tmp_path, Cut(tp=1, multiplier=1), 1)

    def plain(state: dict[str, Any]) -> None:
        state["state"] = state.pop("base_state")
        del state["shape_info"]
        for one in state["state"].values():
            one["step"] = torch.tensor(7.0)

    edit(folder, plain)
    optimizer = open_optimizer(folder)
    assert optimizer.step == 7
    assert_same(everything(optimizer.sources["exp_avg_sq"]), states["exp_avg_sq"])


def test_zero1_of_the_old_interface(tmp_path: Path) -> None:
    """`optim.dp_rank_DD.tp_rank_TT` beside folders `tp_rank_TT_pp_rank_PP`; it knows no stages."""
    folder, states = training(tmp_path / "new", Cut(), 3)
    old = write(tmp_path / "old", Cut(), fixture_weights(), form="folder") / "model"
    for tp in range(4):
        for dp in range(3):
            state = torch.load(folder / "optim" / rank_name(tp, dp=dp))
            torch.save(
                {**state, "dp_rank": dp, "tp_rank": tp}, old / f"optim.dp_rank_{dp:02d}.tp_rank_{tp:02d}"
            )
    optimizer = open_optimizer(old)
    assert optimizer.step == 7
    for kind, source in optimizer.sources.items():
        assert_same(everything(source), states[kind])
    (old / "optim.dp_rank_02.tp_rank_01").unlink()
    with pytest.raises(WeightsError, match=r"1 rank files .* missing: those of \(tp 1 dp 2\)"):
        open_optimizer(old)


def test_step_of_the_tag_and_of_the_optimizer(tmp_path: Path) -> None:
    folder, _ = training(tmp_path / "step_8", Cut(), 1)
    assert open_optimizer(folder).notes[1] == "step_8 was saved when the optimizer had done 7 updates"


ODD: list[dict[str, Any]] = [
    {"base_state": [1]},
    {"base_state": {0: 5}},
    {"param_groups": 5},
    {"param_groups": [5]},
    {"param_groups": [{}]},
    {"param_groups": [{"params": 3}]},
    {"shape_info": {0: 5}},
    {"sharded_master_weights": [1]},
]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda s: s["base_state"][3].update(step=8),
            "updates is 8 in .* and 7 in|updates is 7 in .* and 8 in",
        ),
        (lambda s: s["base_state"][3].update(step="7"), "updates is '7'"),
        (lambda s: s["base_state"].pop(3), "state for 18 parameters, its groups have 19"),
        (lambda s: s["base_state"].clear(), "state for 0 parameters|no state of an Adam"),
        (lambda s: s["base_state"][0].update(step=float("nan")), "updates is nan"),
        (lambda s: s["base_state"][0].pop("exp_avg"), "is a NoneType where"),
        *((lambda s, change=change: s.update(change), "no state of an Adam optimizer") for change in ODD),
        (lambda s: s["shape_info"].update({1: [9, 9]}), r"parameter 1 has shape \(9, 9\), but .*weight_q"),
        (
            lambda s: s["param_groups"].pop(),
            "groups of 14 parameters, and the model's file has 14 .* and 5 others",
        ),
        (lambda s: s["param_groups"][0]["params"].pop(), "groups of 13 and 5 parameters"),
    ],
)
def test_state_that_does_not_fit(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    folder, _ = training(tmp_path, Cut(), 1)
    edit(folder, change)
    with pytest.raises(WeightsError, match=message):
        open_optimizer(folder)


def test_missing_files(tmp_path: Path) -> None:
    folder, _ = training(tmp_path, Cut(), 3)
    (folder / "optim" / rank_name(1, dp=1)).unlink()
    with pytest.raises(WeightsError, match=r"1 rank files .* missing: those of \(tp 1 dp 1\)"):
        open_optimizer(folder)
    for tp in range(4):
        for dp in (1, 2):
            (folder / "optim" / rank_name(tp, dp=dp)).unlink(missing_ok=True)
    with pytest.raises(WeightsError, match=r"shape \(6, 32\) where \(16, 32\) is due with 1 data-parallel"):
        open_optimizer(folder)


def test_optimizer_of_another_topology(tmp_path: Path) -> None:
    folder, _ = training(tmp_path, Cut(), 1)
    for tp in (2, 3):
        (folder / "optim" / rank_name(tp)).unlink()
    with pytest.raises(
        WeightsError, match=r"optimizer files are of ranks \(tp 0\), \(tp 1\), those of the model"
    ):
        open_optimizer(folder)


def test_no_optimizer_state() -> None:
    with pytest.raises(WeightsError, match=r"holds no optimizer state.*weights alone"):
        open_optimizer(FIXTURE / "qkv_kv2")


def test_order_of_groups() -> None:
    model = dict.fromkeys(["a.weight", "a.bias", "norm.weight", "b.weight", "c.weight"])
    decayed, plain = ["a.weight", "b.weight", "c.weight"], ["a.bias", "norm.weight"]

    def names(*groups: tuple[float, int]) -> list[str]:
        given = [{"weight_decay": decay, "params": [0] * count} for decay, count in groups]
        return parameter_names(Path("x"), given, model)  # type: ignore[arg-type]

    assert names((0.1, 5)) == names((0.0, 5)) == list(model)
    assert names((0.1, 3), (0.0, 2)) == names((0.0, 3), (0.0, 2)) == decayed + plain
    assert names((0.0, 2), (0.1, 3)) == plain + decayed
    for unknown in (((0.1, 2), (0.0, 3)), ((0.1, 4),), ((0.1, 3), (0.0, 1), (0.2, 1)), ()):
        with pytest.raises(WeightsError, match="cannot be told"):
            names(*unknown)
