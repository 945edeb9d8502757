"""Draws docs/images/report.png: trains a tiny model, and takes a picture of the report on it.

Run from the repository: `PYTHONPATH=src:tests/support python tests/support/report_picture.py`
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from browser import opened, started
from job_case import kitae, write_case

PICTURE = Path(__file__).parents[2] / "docs/images/report.png"
HEIGHT = 1600
"""Of the picture: the sentence, the result and the first curves."""


def main() -> None:
    """Train, report, draw."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(KITAE_CACHE=f"{folder}/cache", KITAE_STATE=f"{folder}/state")
        os.chdir(folder)
        recipe = write_case(
            Path(folder) / "case",
            name="my-model",
            training={"duration": "120 steps", "global_batch_size": 8, "micro_batch_size": 4},
            schedule={"warmup": "10 steps"},
            evaluation={"every": "20 steps"},
            checkpoint={"every": "40 steps"},
            watch={"alarms": {"disk_free": 0.001}},
        )
        assert kitae("run", recipe) == 0
        with started() as browser, opened(browser, Path("runs/my-model/report.html"), width=1160) as shown:
            PICTURE.parent.mkdir(exist_ok=True)
            shown.page.screenshot(path=PICTURE, full_page=True, clip=_clip())


def _clip() -> dict[str, float]:
    return {"x": 0, "y": 0, "width": 1160, "height": HEIGHT}


if __name__ == "__main__":
    main()
