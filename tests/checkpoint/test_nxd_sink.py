from __future__ import annotations

import errno
import json
import os
import random
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from native_case import DictSource
from nxd_models import FIXTURES, allowed, decoder_config, infos, numbered, rank_state

from kitae.checkpoint.hf import HfSource, read_json
from kitae.checkpoint.nxd import NxdSource
from kitae.checkpoint.nxd_format import NxdFormat, rank_file
from kitae.checkpoint.nxd_layout import nxd_layouts
from kitae.checkpoint.nxd_plan import nxd_bytes
from kitae.checkpoint.nxd_sink import NxdSink
from kitae.checkpoint.stream import stream
from kitae.errors import StorageError, WeightsError
from kitae.model.config import DecoderConfig
from kitae.parallel.layout import Box

FORMAT = NxdFormat(2, 2)
CONFIG = decoder_config()
FULL = numbered(CONFIG)


class Reference:
    """Stands in for torch_xla's class."""

    tid: int


def loaded(path: Path) -> dict[str, torch.Tensor]:
    """A rank's file, as torch loads it when nothing but tensors and references may be in it."""
    names = [(Reference, "torch_xla.utils.serialization.TensorReference")]
    with torch.serialization.safe_globals(names):  # type: ignore[list-item]
        state = torch.load(path, weights_only=True)
    folder = path.with_name(f"{path.name}.tensors")
    return {
        name: torch.load(folder / f"tensor_{value.tid}.pt", weights_only=True)
        if isinstance(value, Reference)
        else value
        for name, value in state.items()
    }


def assert_states_equal(ours: dict[str, torch.Tensor], due: dict[str, torch.Tensor]) -> None:
    assert list(ours) == list(due)
    for name, tensor in due.items():
        assert (ours[name].dtype, ours[name].shape) == (tensor.dtype, tensor.shape)
        assert torch.equal(ours[name], tensor), name
        assert ours[name].is_contiguous()


def sink(folder: Path, tensors: dict[str, torch.Tensor] = FULL, **options: object) -> NxdSink:
    table = nxd_layouts(CONFIG, False, FORMAT)
    return NxdSink(folder, infos(tensors), table, FORMAT, **options)  # type: ignore[arg-type]


def written(folder: Path, **options: object) -> Path:
    with sink(folder, **options) as target:
        stream(DictSource(FULL), target)
    return folder


@pytest.mark.parametrize(
    ("folder", "format", "xser"),
    [
        ("qkv_kv2", NxdFormat(4, kv_multiplier=2), False),
        ("noqkv_tp2", NxdFormat(2, qkv="separate"), False),
        ("qkv_kv2_nxd_xser/step_0", NxdFormat(4, kv_multiplier=2), True),
    ],
)
def test_files_are_those_of_the_real_tools(
    tmp_path: Path, folder: str, format: NxdFormat, xser: bool
) -> None:
    """The same files, and in each the same names in order, dtypes, shapes and values."""
    config = DecoderConfig.from_hf(read_json(FIXTURES / "hf" / "config.json"))
    source = HfSource(FIXTURES / "hf")
    table = nxd_layouts(config, False, format)
    with NxdSink(tmp_path / "out", source.tensors(), table, format, xser=xser) as target:
        stream(source, target)
    real, ours = FIXTURES / folder / "model", tmp_path / "out" / "model"
    assert files(ours) == files(real)
    for rank in range(format.tp_size):
        name = rank_file(rank, 0)
        assert_states_equal(loaded(ours / name), loaded(real / name))
        if xser:
            told = [torch.load(folder / f"{name}.info.pt", weights_only=False) for folder in (ours, real)]
            assert told[0] == told[1]


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(allowed(), st.booleans(), st.randoms(use_true_random=False))
def test_any_order_of_boxes_gives_the_table_and_comes_back(
    tmp_path_factory: pytest.TempPathFactory,
    drawn: tuple[DecoderConfig, bool, NxdFormat],
    xser: bool,
    random: random.Random,
) -> None:
    """HF -> NxD -> HF is bit-equal for whatever the rules allow, and every file is what the table says."""
    config, tied, format = drawn
    full = numbered(config, tied)
    folder = tmp_path_factory.mktemp("nxd") / "out"
    boxes = [(name, box) for name, tensor in full.items() for box in cut(tuple(tensor.shape), random)]
    random.shuffle(boxes)
    table = nxd_layouts(config, tied, format)
    with NxdSink(folder, infos(full), table, format, xser=xser) as target:
        for name, box in boxes:
            target.write(name, box, full[name][box.slices()])
    for tp_rank in range(format.tp_size):
        for pp_rank in range(format.pp_size):
            state = rank_state(config, format, full, tp_rank, pp_rank, tied=tied)
            assert_states_equal(loaded(folder / "model" / rank_file(tp_rank, pp_rank)), state)
    source = NxdSource(folder, config, order=format.order)
    source.check_replicas()
    assert source.format == replace(format, order=source.format.order)
    for name, tensor in full.items():
        assert torch.equal(source.read(name), tensor), name


def cut(shape: tuple[int, ...], random: random.Random) -> list[Box]:
    """Boxes that make up a tensor: all of it, or parts of its rows, or of its columns."""
    dim = random.randrange(-1, len(shape))
    at = random.randrange(shape[dim] + 1)
    if dim < 0 or at in (0, shape[dim]):
        return [Box.whole(shape)]
    return [
        Box(
            tuple(start if d == dim else 0 for d in range(len(shape))),
            (*shape[:dim], size, *shape[dim + 1 :]),
        )
        for start, size in ((0, at), (at, shape[dim] - at))
    ]


def test_tensors_are_cast_to_the_dtypes_that_were_announced(tmp_path: Path) -> None:
    tensors = {name: tensor.bfloat16() for name, tensor in FULL.items()}
    with sink(tmp_path / "out", tensors) as target:
        stream(DictSource(FULL), target)
    state = loaded(tmp_path / "out" / "model" / rank_file(1, 1))
    due = rank_state(CONFIG, FORMAT, FULL, 1, 1)
    assert_states_equal(state, {name: tensor.bfloat16() for name, tensor in due.items()})


def test_long_tensors_go_through_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kitae.checkpoint.nxd_sink._CHUNK_BYTES", 1)
    folder = written(tmp_path / "out")
    for rank in (0, 1):
        state = loaded(folder / "model" / rank_file(rank, 0))
        assert_states_equal(state, rank_state(CONFIG, FORMAT, FULL, rank, 0))


def test_config_and_what_else_is_put_beside_appears_with_it(tmp_path: Path) -> None:
    with sink(tmp_path / "out", config={"model_type": "llama", "unknown": [1]}) as target:
        (target.temporary / "tokenizer.json").write_text("{}")
        stream(DictSource(FULL), target)
        assert not (tmp_path / "out").exists()
    assert json.loads((tmp_path / "out" / "config.json").read_text()) == {
        "model_type": "llama",
        "unknown": [1],
    }
    assert (tmp_path / "out" / "tokenizer.json").exists()


@pytest.mark.parametrize("xser", [False, True])
def test_size_is_known_before(tmp_path: Path, xser: bool) -> None:
    folder = written(tmp_path / "out", xser=xser)
    size = sum(path.stat().st_size for path in folder.rglob("*.pt"))
    values = sum(
        tensor.nbytes
        for tp_rank in (0, 1)
        for pp_rank in (0, 1)
        for tensor in rank_state(CONFIG, FORMAT, FULL, tp_rank, pp_rank).values()
    )
    said = nxd_bytes(infos(FULL), nxd_layouts(CONFIG, False, FORMAT), FORMAT)
    assert values < size < said < size + 200_000


@pytest.mark.parametrize("xser", [False, True])
def test_an_earlier_export_is_replaced_as_a_whole(tmp_path: Path, xser: bool) -> None:
    """T16: never a mix of the files of two exports."""
    written(tmp_path / "out", xser=not xser)
    fresh = files(written(tmp_path / "fresh", xser=xser))
    assert files(written(tmp_path / "out", xser=xser)) == fresh
    assert {path.name for path in tmp_path.iterdir()} == {"out", "fresh"}


def test_somebody_elses_file_deep_inside_is_never_removed(tmp_path: Path) -> None:
    folder = written(tmp_path / "out", xser=True)
    mine = folder / "model" / f"{rank_file(0, 0)}.tensors" / "notes.txt"
    mine.write_text("mine")
    with pytest.raises(WeightsError, match=r"tensors/notes.txt.*not replaced"):
        written(tmp_path / "out", xser=True)
    assert mine.read_text() == "mine"
    assert loaded(folder / "model" / rank_file(0, 0))


@pytest.mark.parametrize("xser", [False, True])
def test_an_error_leaves_the_old_folder_and_nothing_else(tmp_path: Path, xser: bool) -> None:
    before = files(written(tmp_path / "out", xser=xser))
    missing = pytest.raises(WeightsError, match=r"1 tensors were not written in full: lm_head.weight")
    with missing, sink(tmp_path / "out", xser=xser) as target:
        stream(DictSource(FULL), target, [name for name in FULL if name != "lm_head.weight"])
    with pytest.raises(ZeroDivisionError), sink(tmp_path / "out", xser=xser):
        raise ZeroDivisionError
    assert files(tmp_path / "out") == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_full_disk_is_told_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, left = os.pwrite, [20]

    def pwrite(descriptor: int, data: memoryview, position: int) -> int:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, data, position)

    monkeypatch.setattr(os, "pwrite", pwrite)
    with pytest.raises(StorageError, match=r"cannot save to .*out: No space left on device; needed are"):
        written(tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_a_disk_that_is_too_small_is_told_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kitae.storage.disk.free_bytes", lambda path: 1000)
    with pytest.raises(StorageError, match="free are 1,000 bytes"):
        written(tmp_path / "out")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lm_head.weight": None}, "1 of 21 tensors are missing: lm_head.weight"),
        ({"model.extra": torch.ones(2)}, "1 tensors have no place in the NxD format: model.extra"),
        ({"model.norm.weight": torch.ones(9)}, r"model.norm.weight has shape \(9,\) where \(8,\) is due"),
        ({"model.norm.weight": torch.ones(8, dtype=torch.int8)}, r"not: model.norm.weight \(torch.int8\)"),
        (
            {"model.layers.0.mlp.up_proj.weight": torch.ones(16, 8, dtype=torch.bfloat16)},
            r"need one dtype: .*gate_proj.weight \(torch.float32\), .*up_proj.weight \(torch.bfloat16\)",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_refused_before_anything_is_written(
    tmp_path: Path, changes: dict[str, torch.Tensor | None], message: str
) -> None:
    tensors = {name: tensor for name, tensor in {**FULL, **changes}.items() if tensor is not None}
    with pytest.raises(WeightsError, match=message):
        sink(tmp_path / "out", tensors)
    assert not list(tmp_path.iterdir())


PEAK = """
    import sys
    from pathlib import Path
    import torch
    from nxd_models import decoder_config, full_shapes
    from kitae.checkpoint.nxd_format import NxdFormat
    from kitae.checkpoint.nxd_layout import nxd_layouts
    from kitae.checkpoint.nxd_sink import NxdSink
    from kitae.checkpoint.pipe import TensorInfo
    from kitae.parallel.layout import Box

    config = decoder_config(
        vocab_size=8192, hidden_size=1024, intermediate_size=4096, num_hidden_layers=8,
        num_attention_heads=16, num_key_value_heads=8, head_dim=64,
    )
    format = NxdFormat(int(sys.argv[1]))
    infos = {name: TensorInfo(shape, torch.bfloat16) for name, shape in full_shapes(config).items()}

    def peak():
        status = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))

    tensor = torch.zeros(max(info.nbytes for info in infos.values()) // 2)
    tensor += 1
    before = peak()
    with NxdSink(Path(sys.argv[2]), infos, nxd_layouts(config, False, format), format) as sink:
        for name, info in infos.items():
            values = tensor[: torch.Size(info.shape).numel()].view(info.shape)
            sink.write(name, Box.whole(info.shape), values)
    print(sum(info.nbytes for info in infos.values()), peak() - before)
"""


@pytest.mark.parametrize("tp_size", [1, 8])
def test_a_ranks_file_is_never_in_memory(tmp_path: Path, tp_size: int) -> None:
    """Of 300 MB, cast on the way, at most a few chunks are held; at tp 1 all of it is in one file."""
    command = [sys.executable, "-c", textwrap.dedent(PEAK), str(tp_size), str(tmp_path / "out")]
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    told = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    total, grown = map(int, told.stdout.split())
    assert total > 280_000_000
    assert grown < 100_000_000
