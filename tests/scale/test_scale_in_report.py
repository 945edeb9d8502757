"""What the report of a run takes in of `scale.json`."""

from __future__ import annotations

from pathlib import Path

from kitae.scale.imported import imported
from kitae.scale.record import scale_folder, write_scale
from kitae.watch.report.blocks import Chart, Table, Words
from kitae.watch.report.run_view import RunView
from kitae.watch.report.scaling_section import scaling

BERT = Path(__file__).parents[1] / "fixtures/scale/bert-large-trn1.csv"


def test_the_verdict_the_plot_and_the_table_of_each_kind(tmp_path):
    for kind in ("strong", "weak"):
        write_scale(scale_folder(tmp_path, kind, "nodes"), imported(BERT, kind, 0.8).as_json())
    write_scale(scale_folder(tmp_path) / "old/weak-nodes-1", {"kitae_scale": 1, "verdict": "of old"})
    blocks = list(scaling(RunView(tmp_path, jobs={})))
    said = [one.text for one in blocks if isinstance(one, Words)]
    assert "strong scaling: already 16 nodes stay below 80% (42% at 16, 37 to 44%)" in said
    assert "of old" not in said
    strong, weak = (one for one in blocks if isinstance(one, Chart))
    assert [one.name for one in strong.traces] == ["measured", "Amdahl, serial 9.5%", "ideal"]
    assert weak.traces[0].xs == [1, 16]
    tables = [one for one in blocks if isinstance(one, Table)]
    assert [len(one.rows) for one in tables] == [2, 2]
    assert tables[1].rows[1][0] == "16"
