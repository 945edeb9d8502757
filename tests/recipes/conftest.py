"""The scripts of the recipes are no package: they are found in their folder, as when they are started."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "recipes" / "japanese"))
