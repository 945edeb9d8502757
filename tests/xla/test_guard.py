"""Processes that torch-xla takes for several worlds, started by kitae's launcher: refused at once."""

from pathlib import Path

import pytest

from kitae.errors import TrainingError
from kitae.launch.local import launch_ranks
from kitae.launch.order import Launch

pytest.importorskip("torch_xla")
pytestmark = pytest.mark.xla


def work(mesh, folder):
    """What no rank gets to."""
    (Path(folder) / f"trained-{mesh.rank}").touch()


@pytest.mark.parametrize(
    ("devices", "reason"),
    [
        (1, "2 were started, and each sees a world of 1, so that sums would be wrong"),
        (2, "the ranks 0 to 1 take themselves for devices 0, 0"),
    ],
)
def test_two_worlds_are_refused(devices, reason, tmp_path, monkeypatch):
    """The known trap: all_reduce gives every process what it gave, and nothing says so."""
    monkeypatch.setenv("PJRT_DEVICE", "CPU")
    monkeypatch.setenv("CPU_NUM_DEVICES", str(devices))
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=":")
    launch = Launch(world_size=2, tp_size=2, backend="xla", timeout_s=120, logs=tmp_path / "logs")
    with pytest.raises(TrainingError) as caught:
        launch_ranks("test_guard:work", {"folder": str(tmp_path)}, launch)
    told = str(caught.value)
    assert reason in told
    assert "train in several processes with target.backend: cpu" in told
    assert not [*tmp_path.glob("trained-*")]
