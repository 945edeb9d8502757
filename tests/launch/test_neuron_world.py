"""Four ranks on backend neuron meet as its process group wants it: kitae's launcher, and a stand-in."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from torch.utils import backend_registration

from kitae.launch.local import launch_ranks
from kitae.launch.order import Launch

NEEDED = "_setup_privateuseone_for_python_backend"
SUPPORT = Path(__file__).parents[1] / "support" / "neuron_world"


@pytest.mark.skipif(not hasattr(backend_registration, NEEDED), reason="this torch has no spare device")
def test_the_whole_world_comes_first_and_then_the_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The first group starts the runtime, for all ranks; a core is taken after that, then come the mesh's."""
    source = Path(__file__).parents[2] / "src"
    before = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(SUPPORT), str(source), before])))
    launch = Launch(4, 2, "neuron", 60.0, tmp_path / "logs")
    launch_ranks("rank_works:neuron_calls", {"folder": str(tmp_path)}, launch)
    for rank in range(4):
        found = [tuple(one) for one in json.loads((tmp_path / f"calls-{rank}.json").read_text())]
        assert found[:2] == [("group", 4), ("set_device", rank)]
        assert [size for what, size in found[2:]] == [2, 2, 4], "data, tensor and world"
