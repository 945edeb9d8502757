"""Every number that Prometheus is given has the right value, and stands in the manual."""

import json
import os
import re
from pathlib import Path

import pytest
from exported_runs import (
    GIB,
    NOW,
    collector,
    full_run,
    openmetrics_of,
    sample,
    scraped,
    update,
    value,
    write_samples,
)
from recorded_runs import BEGUN_S, attempt, write_run

from kitae.watch.exporter.dashboard import dashboard, dashboard_json
from kitae.watch.exporter.families import BY_NAME, FAMILIES
from kitae.watch.exporter.numbers import UNITS

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "verbs/metrics.md").read_text("utf-8")


@pytest.fixture
def found(tmp_path):
    return scraped(collector(full_run(tmp_path / "demo")))


RUN = {
    "kitae_run_readable": 1,
    "kitae_run_attempts_total": 1,
    "kitae_run_nodes": 2,
    "kitae_run_started_timestamp_seconds": BEGUN_S,
    "kitae_run_last_sign_timestamp_seconds": NOW - 5,
    "kitae_run_remaining_seconds": 12,
    "kitae_run_cost_usd": 10,
    "kitae_run_cost_usd_per_hour": 20,
    "kitae_run_cost_end_usd": 10 + 12 / 180,
    "kitae_run_budget_usd": 100,
    "kitae_training_step": 4,
    "kitae_training_steps": 10,
    "kitae_training_loss": 2.6,
    "kitae_training_learning_rate": 1e-4,
    "kitae_training_gradient_norm": 1.5,
    "kitae_training_device_tokens_per_second": 250,
    "kitae_training_step_seconds": 2,
    "kitae_training_utilisation_ratio": 0.375,
    "kitae_training_peak_memory_bytes": 5 * GIB,
    "kitae_checkpoints": 2,
    "kitae_checkpoint_step": 4,
    "kitae_checkpoint_timestamp_seconds": BEGUN_S + 400,
}


def test_a_run_is_told_by_its_numbers(found):
    assert {name: value(found, name, run="demo") for name in RUN} == pytest.approx(RUN)


@pytest.mark.parametrize(
    ("name", "labels", "expected"),
    [
        ("kitae_run_state", {"state": "running"}, 1),
        ("kitae_run_state", {"state": "died"}, 0),
        ("kitae_training_heldout_loss", {"phase": "short"}, 2.5),
        ("kitae_training_heldout_loss", {"phase": "long"}, 2.25),
        ("kitae_training_tokens_total", {"kind": "padded"}, 4000),
        ("kitae_training_tokens_total", {"kind": "real"}, 3200),
        ("kitae_training_tokens_per_second", {"kind": "padded"}, 500),
        ("kitae_training_tokens_per_second", {"kind": "real"}, 400),
        ("kitae_training_rank_compute_seconds", {"rank": "1", "node": "trn-2"}, 1.9),
        ("kitae_training_rank_slow", {"rank": "0", "node": "trn-1"}, 0),
        ("kitae_training_rank_slow", {"rank": "1", "node": "trn-2"}, 1),
        ("kitae_alarm_active", {"alarm": "slow-rank"}, 1),
        ("kitae_alarm_active", {"alarm": "idle-while-paid"}, 0),
        (
            "kitae_alarm_since_timestamp_seconds",
            {"alarm": "slow-rank", "level": "warning", "node": "trn-2"},
            NOW - 60,
        ),
        ("kitae_node_sample_timestamp_seconds", {"node": "trn-1", "source": "neuron-monitor"}, NOW - 3),
        ("kitae_core_utilisation_ratio", {"node": "trn-1", "core": "1"}, 0.01),
        ("kitae_core_memory_used_bytes", {"node": "trn-1", "core": "1"}, 10 * GIB),
        ("kitae_core_memory_size_bytes", {"node": "trn-1", "core": "1"}, 16 * GIB),
        ("kitae_core_flops_per_second", {"node": "trn-2", "core": "0"}, 2e13),
        ("kitae_device_ecc_errors_total", {"node": "trn-1", "device": "0", "kind": "uncorrected"}, 0),
        ("kitae_device_temperature_celsius", {"node": "trn-1", "device": "0"}, 60.5),
        ("kitae_device_power_watts", {"node": "trn-1", "device": "0"}, 380),
        ("kitae_runtime_errors_total", {"node": "trn-1", "kind": "hardware"}, 1),
        ("kitae_host_cpu_utilisation_ratio", {"node": "trn-1"}, 0.25),
        ("kitae_host_memory_used_bytes", {"node": "trn-1"}, 100 * GIB),
        ("kitae_host_memory_size_bytes", {"node": "trn-1"}, 512 * GIB),
        ("kitae_host_swap_used_bytes", {"node": "trn-1"}, 0),
        ("kitae_host_disk_free_bytes", {"node": "trn-1"}, 700 * GIB),
        ("kitae_host_disk_size_bytes", {"node": "trn-1"}, 1000 * GIB),
        ("kitae_process_cpu_cores", {"node": "trn-1", "pid": "77", "tag": "rank 0"}, 1.5),
        ("kitae_process_memory_used_bytes", {"node": "trn-1", "pid": "77", "tag": "rank 0"}, 9 * GIB),
    ],
)
def test_what_has_more_labels(found, name, labels, expected):
    assert value(found, name, run="demo", **labels) == pytest.approx(expected)


def test_a_run_says_what_it_is(found, tmp_path):
    (info,) = (dict(labels) for name, labels in found if name == "kitae_run_info")
    assert info == {
        "run": "demo",
        "path": str(tmp_path / "demo"),
        "model": "llama-10m",
        "objective": "causal-lm",
        "precision": "bf16-sr",
        "backend": "xla",
        "kitae": "0.1.0",
        "host": "far",
    }


def test_both_formats_say_the_same(tmp_path):
    run = full_run(tmp_path / "demo")
    ours = {key: number for key, number in scraped(collector(run)).items() if "exporter" not in key[0]}
    strict = {
        key: number for key, number in openmetrics_of(collector(run)).items() if "exporter" not in key[0]
    }
    assert strict == ours


def test_every_metric_of_the_table_is_exported_and_no_other(found):
    assert {name for name, _ in found} == set(BY_NAME)
    for name, labels in found:
        family = BY_NAME[name]
        assert {label for label, _ in labels} == {*family.labels, *(("run",) if family.of_run else ())}


def test_the_manual_has_the_same_table():
    rows = re.findall(r"^\| `(kitae_\w+)` \| (\w+) \| (.+) \| (.+) \|$", PAGE, re.MULTILINE)
    documented = [(name, kind, re.findall(r"`(\w+)`", labels), text) for name, kind, labels, text in rows]
    assert documented == [
        (one.name, one.kind, [*(("run",) if one.of_run else ()), *one.labels], one.help) for one in FAMILIES
    ]


def test_names_follow_the_conventions_of_prometheus():
    for family in FAMILIES:
        assert re.fullmatch(r"kitae_[a-z]+(_[a-z]+)*", family.name)
        assert family.name.endswith("_total") == (family.kind == "counter")
        assert not re.search(r"_(ms|minutes|hours|mb|gb|percent)\b", family.name.removesuffix("_per_hour"))
    assert {unit for unit in UNITS if any(unit in family.name for family in FAMILIES)} == set(UNITS)


def queries(text):
    """Names of metrics in a query, each with the labels that are asked for beside it."""
    for name, labels in re.findall(r"(kitae_\w+)(?:\{([^}]*)\})?", text):
        yield name, re.findall(r"(\w+)\s*[=!]~?", labels)


def all_queries() -> list[str]:
    return list(_queries())


def _queries():
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"]
    yield from (one["query"] for one in dashboard()["templating"]["list"] if one["type"] == "query")
    yield from re.findall(r"expr: (.+)$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("query", all_queries())
def test_queries_of_the_dashboard_and_the_manual_ask_for_what_is_exported(query):
    named = list(queries(query))
    assert named
    for name, labels in named:
        family = BY_NAME[name]
        assert set(labels) <= {"run", *family.labels}
    grouped = re.findall(r"(?:by|on) \(([\w, ]+)\)", query)
    for label in (one for group in grouped for one in group.split(", ")):
        assert all(label in ("run", *BY_NAME[name].labels) for name, _ in named)
    for name in re.findall(r"(?:rate|increase)\((kitae_\w+)", query):
        assert BY_NAME[name].kind == "counter"
    called = set(re.findall(r"([a-z_]+)\s*\(", query))
    assert called <= {"sum", "avg", "max", "rate", "increase", "time", "label_values", "by", "on"}
    assert query.count("(") == query.count(")")


def test_legends_name_labels_that_are_there():
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            wanted = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            grouped = re.search(r"by \(([\w, ]+)\)", target["expr"])
            name = re.search(r"kitae_\w+", target["expr"])[0]
            there = set(grouped[1].split(", ")) if grouped else {"run", *BY_NAME[name].labels}
            assert wanted <= there, panel["title"]


def test_the_dashboard_is_laid_out_without_overlap_and_is_the_file_of_the_manual():
    assert (DOCS / "grafana/kitae.json").read_text("utf-8") == dashboard_json()
    panels = json.loads(dashboard_json())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = set()
    for panel in panels:
        box = panel["gridPos"]
        cells = {
            (x, y) for x in range(box["x"], box["x"] + box["w"]) for y in range(box["y"], box["y"] + box["h"])
        }
        assert box["x"] + box["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells


def test_each_metric_of_a_run_that_matters_is_on_the_dashboard():
    shown = {name for query in all_queries() for name, _ in queries(query)}
    for name in ("loss", "tokens_per_second", "utilisation_ratio", "learning_rate", "gradient_norm"):
        assert f"kitae_training_{name}" in shown


def test_512_cores_are_each_there(tmp_path):
    run = write_run(tmp_path / "big", [attempt(host="far")])
    nodes = [f"trn-{n}" for n in range(16)]
    write_samples(run, *(sample(node, cores=32) for node in nodes))
    for found in (scraped(collector(run)), openmetrics_of(collector(run))):
        cores = {key: number for key, number in found.items() if key[0] == "kitae_core_utilisation_ratio"}
        assert len(cores) == 512
        assert value(found, "kitae_core_utilisation_ratio", run="big", node="trn-15", core="31") == 0.31
        ecc = [number for key, number in found.items() if key[0] == "kitae_device_ecc_errors_total"]
        assert (len(ecc), sum(ecc)) == (16 * 16 * 2, 16 * sum(range(16)))


def test_machines_that_are_watched_no_more_are_left_out(tmp_path):
    run = write_run(tmp_path / "old", [attempt("finished")], steps=3)
    write_samples(run, sample(time=NOW - 61), sample("trn-2", time=NOW - 400, period_s=90.0))
    nodes = {dict(labels).get("node") for _, labels in scraped(collector(run))} - {None}
    assert nodes == {"trn-2"}


def test_a_run_that_has_ended_has_a_loss_but_no_speed(tmp_path):
    found = scraped(collector(write_run(tmp_path / "done", [attempt("finished")], steps=10)))
    assert value(found, "kitae_training_loss", run="done") == 2.0
    assert value(found, "kitae_run_state", run="done", state="done") == 1
    for name in ("training_tokens_per_second", "training_step_seconds", "run_remaining_seconds"):
        assert not any(key[0] == f"kitae_{name}" for key in found)


def test_tokens_never_fall_back(tmp_path):
    """A resumed run repeats steps; a counter that fell would look like as many new tokens."""
    run = full_run(tmp_path / "demo")
    asked = collector(run)
    assert value(scraped(asked), "kitae_training_tokens_total", run="demo", kind="real") == 3200
    for total, expected in ((2, 3200), (5, 4000)):
        (run / "metrics.jsonl").write_text(json.dumps(update(total)) + "\n")
        os.utime(run / "metrics.jsonl", (NOW - 5, NOW - 5))
        found = scraped(asked)
        assert value(found, "kitae_training_tokens_total", run="demo", kind="real") == expected
        assert value(found, "kitae_training_step", run="demo") == total
