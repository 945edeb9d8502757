from __future__ import annotations

import builtins
import os
import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from pickle_case import TRAPPED, Calls, archive, name, same_state, text

from kitae.checkpoint.restricted import TensorReference, open_pickled, replaced
from kitae.checkpoint.torch_archive import StoredTensor
from kitae.errors import WeightsError
from kitae.parallel.layout import Box

FIXTURE = Path(__file__).parent.parent / "fixtures" / "nxd"
REFERENCE = ("torch_xla.utils.serialization", "TensorReference")
DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
]
END = b"."
PROTOCOL = b"\x80\x02"


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def load_pickled(path: Path) -> Any:
    """With real tensors."""
    return replaced(path, open_pickled(path), StoredTensor, StoredTensor.read)


def values(dtype: torch.dtype) -> torch.Tensor:
    return (torch.arange(24).reshape(4, 6) % 5).to(dtype)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_all_dtypes_as_torch_loads_them(tmp_path: Path, protocol: int) -> None:
    state = {str(dtype): values(dtype) for dtype in DTYPES}
    torch.save(state, tmp_path / "a.pt", pickle_protocol=protocol)
    same_state(load_pickled(tmp_path / "a.pt"), state)


def test_tensors_that_are_no_plain_block(tmp_path: Path) -> None:
    whole = torch.arange(120.0).reshape(4, 5, 6)
    state = {
        "transposed": whole.permute(2, 0, 1),
        "part": whole[1:3, ::2, 1:4],
        "scalar": torch.tensor(7.0),
        "of one": torch.tensor([7.0]),
        "empty": torch.empty(0, 3),
        "same storage": whole,
    }
    torch.save(state, tmp_path / "a.pt")
    same_state(load_pickled(tmp_path / "a.pt"), state)


@pytest.mark.parametrize(
    "box", [Box((0, 0, 0), (6, 4, 5)), Box((2, 1, 3), (3, 2, 1)), Box((5, 0, 0), (0, 4, 5))]
)
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_any_box(tmp_path: Path, box: Box, order: tuple[int, ...]) -> None:
    plain = torch.arange(120.0).reshape([(6, 4, 5)[order.index(i)] for i in range(3)])
    tensor = plain.permute(order)
    torch.save(tensor, tmp_path / "a.pt")
    part = open_pickled(tmp_path / "a.pt").read(box)
    assert torch.equal(part, tensor[box.slices()])
    assert part.untyped_storage().nbytes() <= tensor.numel() * 4


def test_containers_modules_and_parameters(tmp_path: Path) -> None:
    module = torch.nn.Linear(3, 2)
    saved = {
        "module": module.state_dict(),
        "parameters": dict(module.named_parameters()),
        "numbers": [
            1,
            -1,
            300,
            70_000,
            1 << 40,
            0.5,
            True,
            False,
            None,
            (1,),
            (1, 2),
            (1, 2, 3),
            (1, 2, 3, 4),
            (),
        ],
        "size": torch.Size([2, 3]),
        "dtype": torch.bfloat16,
        "ordered": OrderedDict(a=1),
        0: {"text": "ひ"},
    }
    torch.save(saved, tmp_path / "a.pt")
    loaded = load_pickled(tmp_path / "a.pt")
    same_state(loaded.pop("module"), saved.pop("module"))
    same_state(loaded.pop("parameters"), saved.pop("parameters"))
    assert loaded == saved


def test_tensors_stay_in_the_file(tmp_path: Path) -> None:
    torch.save({"a": torch.zeros(1000, 1000)}, tmp_path / "a.pt")
    tensor = open_pickled(tmp_path / "a.pt")["a"]
    assert isinstance(tensor, StoredTensor)
    assert tensor.read(Box((7, 0), (2, 1000))).untyped_storage().nbytes() == 8000


def test_every_file_of_the_fixture_as_torch_loads_it() -> None:
    """torch gets an own stand-in for the reference class."""

    class Reference:
        pass

    with torch.serialization.safe_globals([(Reference, ".".join(REFERENCE))]):
        for path in sorted(FIXTURE.rglob("*.pt")):
            ours, theirs = load_pickled(path), torch.load(path)
            assert _plain(ours) == _plain(theirs), path


def _plain(value: Any) -> Any:
    """With tensors as bytes and references as their numbers."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape), value.contiguous().view(torch.uint8).numpy().tobytes()
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return ("reference", value.tid) if hasattr(value, "tid") else value


def test_reference() -> None:
    path = FIXTURE / "qkv_kv2_nxd_xser/step_0/model/dp_rank_00_tp_rank_00_pp_rank_00.pt"
    references = open_pickled(path)
    assert [reference.tid for reference in references.values()] == list(range(19))
    assert all(isinstance(reference, TensorReference) for reference in references.values())


TRAPS: dict[str, tuple[Any, str]] = {
    "system": (Calls(os.system, f"touch {TRAPPED}"), "system"),
    "eval": (Calls(builtins.eval, f"open({TRAPPED!r}, 'w')"), "eval"),
    "touch": (Calls(Path.touch, Path(TRAPPED)), "getattr|pathlib"),
    "in a list": ([{"a": (1, [Calls(os.mkdir, TRAPPED)])}], "mkdir"),
    "call of a call": (
        Calls(Calls(getattr, Calls(__import__, "os"), "mkdir"), TRAPPED),
        "getattr|__import__",
    ),
    "import": (Calls(__import__, "antigravity"), "__import__"),
    "torch.load": (Calls(torch.load, "other.pt"), "torch.serialization.load"),
    "nested pickle": (Calls(torch.storage._load_from_bytes, b"x"), "torch.storage._load_from_bytes"),
    "torch.hub": (Calls(torch.hub.load, "a/b", "c"), "torch.hub.load"),
    "set": ({1, 2}, "EMPTY_SET|set"),
    "device": (torch.device("cpu"), "torch.device"),
    "function": (torch.nn.functional.relu, "relu"),
    "module": (torch.nn.Linear(1, 1), "torch.nn.modules.linear.Linear"),
}


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("kind", TRAPS)
def test_what_wants_to_run_code_is_named_and_not_run(tmp_path: Path, kind: str, protocol: int) -> None:
    trap, wanted = TRAPS[kind]
    torch.save({"a": torch.zeros(2), "b": trap}, tmp_path / "a.pt", pickle_protocol=protocol)
    with pytest.raises(WeightsError, match=wanted) as caught:
        open_pickled(tmp_path / "a.pt")
    assert str(tmp_path / "a.pt") in str(caught.value)
    assert not Path(TRAPPED).exists()


HOOK = name("posix", "system") + text(f"touch {TRAPPED}") + b"\x85R"
BY_HAND: dict[str, tuple[bytes, str]] = {
    "trap in the state of a reference": (
        name(*REFERENCE) + b")\x81}" + text("tid") + HOOK + b"sb.",
        "posix.system",
    ),
    "reference with more than a number": (
        name(*REFERENCE) + b")\x81}" + text("tid") + text("../x") + b"sb.",
        "number",
    ),
    "negative reference": (name(*REFERENCE) + b")\x81}" + text("tid") + b"J\xff\xff\xff\xffsb.", "number"),
    "state for a class": (name(*REFERENCE) + b"}" + text("tid") + b"K\0sb.", "a state for"),
    "state for a function": (name("torch._utils", "_rebuild_tensor_v2") + b"N}\x86b.", "a state for"),
    "call of a tensor's dtype": (name("torch", "float32") + b")R.", "a call of dtype"),
    "call of a text": (text("os.system") + b")R.", "a call of str"),
    "name of a name": (b"\x8c\x02os\x8c\x06system\x93.", "os.system"),
    "name with a trick": (name("torch", "_utils.os.system") + b".", "torch._utils.os.system"),
    "endless name": (name("x" * 100_000, "y") + b".", "x" * 200 + "'"),
    "control characters in a name": (name("x\x1b[2J", "y") + b".", r"x\\x1b"),
    "extension": (b"\x82\x01.", "instruction EXT1"),
    "old instance": (b"(iposix\nsystem\n.", "instruction INST"),
    "object": (b"(" + name("torch", "Size") + b"o.", "instruction OBJ"),
    "no end": (b"}", "STOP"),
    "two results": (b"}}.", "too many values"),
    "no result": (b".", "not enough values"),
    "items for a class": (name("collections", "OrderedDict") + text("a") + b"K\1s.", "no dict"),
    "items for a storage type": (name("torch", "FloatStorage") + b"K\1a.", "no list"),
    "memo that is not there": (b"h\x07.", "pickle"),
    "mark that is not there": (b"K\1e.", "pickle"),
    "too few items": (b"(K\1\x86.", "too few items"),
    "odd items": (b"}(" + text("a") + b"u.", "pickle"),
    "text beyond the end": (b"X\xff\xff\xff\xffab.", "pickle"),
    "tuple as a key": (b"})K\1s.", "a key"),
    "size of 2 ** 70": (name("torch", "Size") + b"\x8a\x0a" + b"\0" * 8 + b"\x40\0\x85\x85R.", "a size"),
    "persistent text": (text("cpu") + b"Q.", "pickle"),
}


@pytest.mark.parametrize("kind", BY_HAND)
def test_pickles_by_hand(tmp_path: Path, kind: str) -> None:
    pickled, message = BY_HAND[kind]
    path = archive(tmp_path / "a.pt", PROTOCOL + pickled)
    with pytest.raises(WeightsError, match=message):
        open_pickled(path)
    assert not Path(TRAPPED).exists()
    assert TensorReference.tid == -1


def test_huge_memo_number_takes_no_memory(tmp_path: Path) -> None:
    """Python's own unpickler makes room for 2 ** 31 objects."""
    path = archive(tmp_path / "a.pt", PROTOCOL + b"K\7r\xff\xff\xff\x7f0j\xff\xff\xff\x7f.")
    with pytest.raises(WeightsError, match="instruction POP"):
        open_pickled(path)
    assert open_pickled(archive(path, PROTOCOL + b"K\7r\xff\xff\xff\x7f.")) == 7


def test_containers_in_themselves_and_doubled(tmp_path: Path) -> None:
    """Neither endless recursion, nor 2 ** 60 places, nor a hash of them."""
    path = archive(tmp_path / "a.pt", PROTOCOL + b"]q\0h\0a.")
    with pytest.raises(WeightsError, match="deep"):
        load_pickled(path)
    doubled = b"".join(b"q" + bytes([i]) + b"h" + bytes([i]) + b"\x86" for i in range(60))
    nested = load_pickled(archive(path, PROTOCOL + b")" + doubled + b"."))
    assert nested[0] is nested[1]
    with pytest.raises(WeightsError, match="a key"):
        open_pickled(archive(path, PROTOCOL + b"}" + b")" + doubled + b"K\1s."))
    deep = b"]" * 5000 + b"a" * 4999
    with pytest.raises(WeightsError, match="deep"):
        load_pickled(archive(path, PROTOCOL + deep + b"."))


def tensor_pickle(*, size: bytes, stride: bytes, offset: bytes = b"K\0", numel: bytes = b"K\4") -> bytes:
    storage = text("storage") + name("torch", "FloatStorage") + text("0") + text("cpu") + numel
    return (
        PROTOCOL
        + name("torch._utils", "_rebuild_tensor_v2")
        + b"(("
        + storage
        + b"tQ"
        + offset
        + size
        + stride
        + b"\x89"
        + name("collections", "OrderedDict")
        + b")RtR."
    )


def test_tensors_that_reach_out_of_their_storage(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    data = {"data/0": torch.arange(4.0).numpy().tobytes()}
    good = archive(path, tensor_pickle(size=b"K\2K\2\x86", stride=b"K\2K\1\x86"), data)
    assert open_pickled(good).read().tolist() == [[0.0, 1.0], [2.0, 3.0]]
    for bad in (
        tensor_pickle(size=b"K\2K\3\x86", stride=b"K\3K\1\x86"),
        tensor_pickle(size=b"K\2K\2\x86", stride=b"K\3K\1\x86"),
        tensor_pickle(size=b"K\2K\2\x86", stride=b"K\2K\1\x86", offset=b"K\1"),
        tensor_pickle(size=b"J\0\0\0\x7fK\2\x86", stride=b"K\0K\0\x86"),
        tensor_pickle(size=b"K\2K\2\x86", stride=b"K\1\x85"),
        tensor_pickle(size=b"K\2K\2\x86", stride=b"J\xff\xff\xff\xffK\1\x86"),
        tensor_pickle(size=text("22"), stride=b"K\1\x85"),
    ):
        with pytest.raises(WeightsError, match="manipulated"):
            open_pickled(archive(path, bad, data))
    with pytest.raises(WeightsError, match="cut off at its record data/0"):
        open_pickled(archive(path, tensor_pickle(size=b"K\5\x85", stride=b"K\1\x85", numel=b"K\5"), data))
    with pytest.raises(WeightsError, match="lacks its record data/0"):
        open_pickled(archive(path, tensor_pickle(size=b"K\4\x85", stride=b"K\1\x85")))


@pytest.mark.parametrize("keep", [0, 1, 3, 200, -1, -300])
def test_truncated_file(tmp_path: Path, keep: int) -> None:
    torch.save({"a": torch.zeros(1000)}, tmp_path / "a.pt")
    content = (tmp_path / "a.pt").read_bytes()
    (tmp_path / "a.pt").write_bytes(content[:keep])
    with pytest.raises(WeightsError, match=r"is cut off|no archive of torch\.save") as caught:
        open_pickled(tmp_path / "a.pt")
    assert str(tmp_path / "a.pt") in str(caught.value)


def test_file_that_shrinks_after_it_was_opened(tmp_path: Path) -> None:
    torch.save(torch.zeros(1000), tmp_path / "a.pt")
    tensor = open_pickled(tmp_path / "a.pt")
    (tmp_path / "a.pt").write_bytes(b"")
    with pytest.raises(WeightsError, match="ends before"):
        tensor.read()


def test_files_of_another_kind(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    with pytest.raises(WeightsError, match="missing"):
        open_pickled(path)
    torch.save({"a": torch.zeros(1)}, path, _use_new_zipfile_serialization=False)
    with pytest.raises(WeightsError, match=r"before 1\.6"):
        open_pickled(path)
    path.write_bytes(pickle.dumps({}))
    with pytest.raises(WeightsError, match="no archive"):
        open_pickled(path)
    with pytest.raises(WeightsError, match="other byte order"):
        open_pickled(archive(path, PROTOCOL + b"}.", {"byteorder": b"big"}))
    with pytest.raises(WeightsError, match=r"lacks its record data\.pkl"):
        open_pickled(_renamed(path))


def _renamed(path: Path) -> Path:
    import zipfile

    with zipfile.ZipFile(path, "w") as file:
        file.writestr("word/document.xml", b"<xml/>")
    return path
