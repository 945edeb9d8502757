"""What a broken, foreign or newer checkpoint is told as."""

import hashlib
import json

import pytest
import torch
from native_case import edit_manifest, grid, write_checkpoint

from kitae.checkpoint.manifest import MANIFEST_NAME, Manifest, read_manifest
from kitae.checkpoint.native import NativeSource
from kitae.checkpoint.resume import open_checkpoint
from kitae.errors import WeightsError

FILE = "weights-f32-00001.safetensors"


@pytest.fixture
def folder(tmp_path):
    full = torch.arange(32.0).reshape(4, 8)
    write_checkpoint(tmp_path, {"w": full}, {"w": grid((4, 8), 2, 1)})
    return tmp_path


def refused(folder, *patterns, verify=True):
    with pytest.raises(WeightsError) as caught:
        open_checkpoint(folder, verify=verify)
    for pattern in patterns:
        assert pattern in str(caught.value)


def redigest(folder, change):
    """Change the manifest the way a writer with a fault would: with a digest that fits."""
    body = json.loads((folder / MANIFEST_NAME).read_bytes())
    change(body)
    body.pop("digest")
    digest = hashlib.sha256(json.dumps(body, ensure_ascii=False).encode()).hexdigest()
    (folder / MANIFEST_NAME).write_text(json.dumps({"digest": digest, **body}))


def test_a_whole_one_opens(folder):
    checkpoint = open_checkpoint(folder)
    assert (checkpoint.step, checkpoint.state, checkpoint.config["model_type"]) == (1, {"step": 1}, "llama")
    assert checkpoint.source().read("w").sum() == sum(range(32))


def test_no_checkpoint(tmp_path):
    refused(tmp_path, str(tmp_path), "not a complete checkpoint", "manifest.json")
    refused(tmp_path / "nowhere", "nowhere", "not a complete checkpoint")
    (tmp_path / MANIFEST_NAME).write_text('{"files": []}')
    refused(tmp_path, "not the manifest of a kitae checkpoint")


def test_newer_format(folder):
    edit_manifest(folder, lambda body: body.update(version=2))
    refused(folder, "manifest.json", "format version 2", "reads up to 1", "update kitae")


def test_missing_file(folder):
    (folder / FILE).unlink()
    refused(folder, FILE, "is missing", "use an older checkpoint", verify=False)
    with pytest.raises(WeightsError, match=r"00001.safetensors is missing"):
        NativeSource(folder).read("w")


@pytest.mark.parametrize("cut", [1, 100])
def test_truncated_file(folder, cut):
    data = (folder / FILE).read_bytes()
    (folder / FILE).write_bytes(data[:-cut])
    refused(folder, FILE, "truncated", f"{len(data) - cut:,} bytes instead of {len(data):,}", verify=False)


def test_grown_file(folder):
    with (folder / FILE).open("ab") as file:
        file.write(b"x")
    refused(folder, FILE, "too long", verify=False)


def test_flipped_bit(folder):
    data = bytearray((folder / FILE).read_bytes())
    data[-1] ^= 1
    (folder / FILE).write_bytes(data)
    assert open_checkpoint(folder, verify=False).step == 1
    refused(folder, FILE, "damaged", "sha256")


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body.update(step=2),
        lambda body: body["state"].update(step=3),
        lambda body: body["files"][FILE].update(size_bytes=1),
        lambda body: body.pop("recipe_hash"),
        lambda body: body.pop("digest"),
    ],
)
def test_changed_manifest(folder, change):
    edit_manifest(folder, change)
    refused(folder, "manifest.json is damaged", "digest", verify=False)


@pytest.mark.parametrize("keep_bytes", [0, 1, 50, 400])
def test_truncated_manifest(folder, keep_bytes):
    path = folder / MANIFEST_NAME
    path.write_bytes(path.read_bytes()[:keep_bytes])
    refused(folder, "manifest.json is damaged", "not JSON")


def test_endlessly_nested_manifest(folder):
    (folder / MANIFEST_NAME).write_text("[" * 100_000 + "]" * 100_000)
    refused(folder, "manifest.json is damaged", "not JSON")


@pytest.mark.parametrize("version", [0, "1", None])
def test_nonsense_version(folder, version):
    edit_manifest(folder, lambda body: body.update(version=version))
    refused(folder, "manifest.json is damaged", repr(version))


def _boxes(body):
    return body["tensors"]["weights"]["w"]["boxes"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda body: _boxes(body).pop(), "tensors were not written in full"),
        (lambda body: _boxes(body).append(_boxes(body)[0]), "written twice"),
        (lambda body: _boxes(body)[1]["start"].__setitem__(0, 3), "does not fit"),
        (lambda body: _boxes(body)[0].update(file="other"), "'other', which is not among the files"),
        (lambda body: body["files"].update({"../x": body["files"][FILE]}), "'../x' is not a name of a file"),
        (lambda body: body.update(step="one"), "step is 'one'"),
        (lambda body: body["tensors"]["weights"]["w"].update(dtype="F7"), "F7"),
        (lambda body: body.update(tensors=[]), "contradicts itself"),
    ],
)
def test_contradictions(folder, change, message):
    redigest(folder, change)
    refused(folder, message, verify=False)


def test_a_file_that_holds_something_else(folder):
    redigest(folder, lambda body: _boxes(body)[0].update(key="v"))
    with pytest.raises(WeightsError, match=r"does not hold v as the manifest says"):
        open_checkpoint(folder).source().read("w")


@pytest.mark.parametrize("state", [{"x": torch.zeros(1)}, {"loss": float("nan")}, {"s": {1, 2}}])
def test_state_must_be_json(state):
    with pytest.raises(WeightsError, match="step 7 cannot be saved: its state or config is not plain JSON"):
        Manifest("run", 1, 7, "r", None, state, {}, {}, {}).encode()


def test_floats_of_the_state_come_back_exactly(tmp_path):
    state = {"loss": 0.1 + 0.2, "tiny": 5e-324, "big": 2**63, "text": "日本語"}
    (tmp_path / MANIFEST_NAME).write_bytes(Manifest("run", 1, 7, "r", 1.5, state, {}, {}, {}).encode())
    manifest = read_manifest(tmp_path)
    assert (manifest.state, manifest.heldout_loss) == (state, 1.5)
