"""The content of `scale.json`, and what is printed of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kitae.cli.scale_tables import head, seconds, show, table_of
from kitae.scale.efficiency import Spread
from kitae.scale.measured import Measured, SlowRank, Waits
from kitae.scale.result import Predicted, Scaling
from kitae.scale.verdict import Reached, verdict

BATCH = {"copies": 1, "global_batch_size": 8, "micro_batch_size": 2, "accumulation_steps": 4, "hosts": 1}


def one(width: int, number: int, rate: float, **changes) -> Measured:
    return Measured(
        width=width,
        round=str(number),
        rate=rate,
        real_rate=rate * 0.75,
        step_s=1024 / rate,
        first_step_s=3.0,
        waits=Waits(0.1 * (width - 1), 0.15 * (width - 1)),
        losses=(4.0, 3.0, 2.0),
        grad_norms=(1.0, 1.0, 1.0),
        about={**BATCH, "copies": width, "accumulation_steps": 4 // width},
        **changes,
    )


SCALING = Scaling(
    name="tiny",
    kind="strong",
    unit="workers",
    rate_of="tokens",
    threshold=0.8,
    widths=[1, 2, 4],
    measured=[one(1, 1, 1000.0), one(2, 1, 1800.0), one(2, 2, 1600.0), one(1, 2, 1000.0)],
    failed={4: "out of memory"},
    predicted={1: Predicted(1.0, 1024.0, 0.0), 2: Predicted(0.5, 2048.0, 0.05)},
    price={1: 3.6, 2: 7.2},
    about={"precision": "fp32", "steps": 20, "warm_up": 2},
    wanted=6,
)


def test_a_failed_width_is_told_and_the_rest_kept():
    found = SCALING.as_json()
    assert [row["repeats"] for row in found["widths"]] == [2, 2, 0]
    assert found["widths"][2] == {"width": 4, "repeats": 0, "failed": "out of memory"}
    assert not found["complete"]
    assert "4 workers: failed: out of memory" in found["remarks"]
    assert found["verdict"] == "strong scaling: up to 2 workers above 80% (85% at 2, 80 to 90%)"


def test_numbers_of_a_width():
    row = SCALING.as_json()["widths"][1]
    assert row["rate"] == {"median": 1700.0, "low": 1600.0, "high": 1800.0}
    assert row["real_rate"] == 1275.0
    assert row["efficiency"] == pytest.approx({"median": 0.85, "low": 0.8, "high": 0.9})
    assert row["speedup"] == pytest.approx(1.7)
    assert row["serial_fraction"]["median"] == pytest.approx((1 / 1.7 - 0.5) / 0.5)
    assert row["serial_fraction"]["low"] == pytest.approx((1 / 1.8 - 0.5) / 0.5)
    assert row["communication"] == pytest.approx({"mean": 0.1, "worst": 0.15})
    assert row["predicted"] == {"step_s": 0.5, "efficiency": 1.0, "communication": 0.05}
    assert row["predicted_by_actual"] == pytest.approx(0.5 / ((1024 / 1800 + 1024 / 1600) / 2))
    assert row["usd_per_million_tokens"] == pytest.approx(7.2 / 3600 / 1700 * 1e6)
    assert row["first_step_s"] == 3.0
    assert row["failed"] is None


def test_losses_that_differ_are_no_same_training():
    good = SCALING.as_json()["losses"]
    assert good == {"equal": True, "difference": 0.0, "tolerance": 1e-4, "updates": 5}
    other = replace(one(2, 1, 1800.0), losses=(4.0, 3.1, 2.0))
    found = replace(SCALING, measured=[one(1, 1, 1000.0), other]).as_json()
    assert not found["losses"]["equal"]
    assert any("these are not the same training" in line for line in found["remarks"])
    in_bf16 = replace(SCALING, measured=[one(1, 1, 1000.0), other], about={"precision": "bf16"}).as_json()
    assert not in_bf16["losses"]["equal"]
    assert replace(SCALING, kind="weak").as_json()["losses"] is None


def test_a_slow_rank_threads_and_hosts_are_told():
    slow = one(2, 1, 1800.0, slow=(SlowRank(1, "n2", 1.5),), oversubscribed=True)
    found = replace(SCALING, unit="nodes", measured=[one(1, 1, 1000.0), slow, one(2, 2, 1800.0)]).as_json()
    assert found["widths"][1]["slow"] == [{"rank": 1, "node": "n2", "ratio": 1.5}]
    told = "\n".join(found["remarks"])
    assert "2 nodes: rank 1 on n2 computes 1.50 x as long as the others" in told
    assert "2 nodes: they are 1 host" in told
    assert "2 nodes: more threads than cores" in told


def test_repeats_that_differ_are_told():
    told = SCALING.as_json()["remarks"]
    assert sum("faster than the slowest" in line for line in told) == 1
    assert any(line.startswith("2 workers: the fastest repeat is 12% faster") for line in told)


def test_the_plot_has_what_was_measured_the_plan_the_law_and_the_ideal():
    plot = SCALING.as_json()["plot"]
    names = [line["name"] for line in plot["series"]]
    assert names[:2] == ["measured", "plan"]
    assert names[2].startswith("Amdahl, serial ")
    assert names[3] == "ideal"
    measured, plan = plot["series"][:2]
    assert measured["x"] == [1, 2]
    assert measured["y"] == pytest.approx([1.0, 0.85])
    assert measured["low"] == pytest.approx([1.0, 0.8])
    assert plan["y"] == [1.0, 1.0]


def test_nothing_measured_is_no_error():
    found = replace(SCALING, measured=[]).as_json()
    assert found["base"] is None
    assert found["fit"] is None
    assert "nothing to compare" in found["verdict"]
    assert found["plot"]["series"] == []


def reached(*pairs: tuple[int, float, float]) -> list[Reached]:
    return [Reached(width, Spread((low + high) / 2, low, high)) for width, low, high in pairs]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (
            reached((1, 1, 1), (8, 0.82, 0.86), (16, 0.6, 0.62)),
            "up to 8 nodes above 80% (84% at 8, 82 to 86%); 61% at 16, 60 to 62%",
        ),
        (reached((2, 1, 1), (4, 0.5, 0.5)), "already 4 nodes stay below 80% (50% at 4)"),
        (
            reached((1, 1, 1), (2, 0.7, 0.7), (4, 0.9, 0.9)),
            "already 2 nodes stay below 80% (70% at 2)",
        ),
        (
            reached((1, 1, 1), (2, 0.78, 0.88)),
            "up to 2 nodes above 80% (83% at 2, 78 to 88%); repeats at 2 lie on both sides of 80%",
        ),
    ],
)
def test_the_verdict(found, said):
    assert verdict("strong", "nodes", 0.8, found) == f"strong scaling: {said}"


def test_the_table_marks_what_shares_cores(capsys):
    crowded = one(2, 1, 1800.0, oversubscribed=True)
    found = replace(SCALING, measured=[one(1, 1, 1000.0), crowded]).as_json()
    show({**found, "warnings": ["2 workers share a core"]})
    printed = capsys.readouterr().out
    assert "2*" in printed
    assert printed.rstrip().endswith("90% at 2); at 2, more threads than cores")
    assert "8 = 2x2x2" in printed
    assert "warning: 2 workers share a core" in printed
    assert "1,800" in printed
    assert "1,350" in printed
    assert "10%, 15%" in printed
    assert "the first 2 of each measurement are left out (the very first took 3 s)" in head(found)[0]


def test_columns_of_which_nothing_is_known_are_left_out():
    bare = [Measured(1, "1", 10.0), Measured(2, "1", 15.0)]
    found = replace(SCALING, measured=bare, predicted={}, price={}, failed={}).as_json()
    assert [str(column.header) for column in table_of(found).columns] == [
        "workers",
        "tokens/s",
        "efficiency",
        "serial",
    ]
    assert head(found) == []
    assert (seconds(0.0123), seconds(2.5)) == ("12.3 ms", "2.5 s")
