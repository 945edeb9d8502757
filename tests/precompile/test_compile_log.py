"""Logs of Neuron's tools: lines that run into each other, broken bytes, PASS for all (rows 13, 52; T56)."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from neuron_cache import ERROR, VERSION, extracting, using

from kitae.precompile.compile_log import Module, Progress, read_log
from kitae.precompile.result import Outcome, read_summary

ROOT = Path("/var/tmp/neuron-compile-cache")
FIRST, SECOND, THIRD = (f"MODULE_{number}+abb26765" for number in ("111", "222", "333"))


def called(name: str) -> str:
    work = f"/tmp/no-user/neuroncc_compile_workdir/f3d0b9bd/model.{name}"
    words = ["neuronx-cc", "compile", "--target=trn1", f"{work}.hlo_module.pb", "--output", f"{work}.neff"]
    return f"2026-11-30 16:04:13.000159:  87302  INFO ||NEURON_CC_WRAPPER||: Call compiler with cmd: {words}"


def lines(*texts: str) -> list[bytes]:
    return [f"{text}\n".encode() for text in texts]


def test_graphs_of_a_trial_run_are_found_between_bars_of_progress():
    log = read_log(
        lines(
            "2026-11-30 16:03:05.000270:  175  INFO ||NEURON_CACHE||: Compile cache path: /var/tmp/x",
            " 10%|█         | 1/10 [00:15<01:17,  8.64s/it]" + extracting(ROOT, FIRST),
            extracting(ROOT, FIRST),
            "....." + using(ROOT, SECOND),
        )
    )
    assert list(log.extracted) == [Module(FIRST, VERSION)]
    assert list(log.cached) == [Module(SECOND, VERSION)]
    assert list(log.needed) == [Module(FIRST, VERSION), Module(SECOND, VERSION)]


def test_older_prefixes_and_older_names_of_graphs_are_read():
    text = (
        "2023-07-07 13:56:01.000284: INFO ||NCC_WRAPPER||: Using a cached neff at /tmp/x/"
        "neuronxcc-2.7.0.40+f7c6cf2a3/MODULE_7411938889920977621+d41d8cd9/model.neff. Exiting."
    )
    log = read_log(lines(text))
    assert list(log.cached) == [Module("MODULE_7411938889920977621+d41d8cd9", "neuronxcc-2.7.0.40+f7c6cf2a3")]


def test_a_byte_that_is_no_utf8_hides_no_graph_behind_it():
    """Row 13: the tool itself stopped at such a byte, and compiled a part (sdk#886)."""
    raw = [b"\xff\xfe tokenising \xff\n", b"\xff" + extracting(ROOT, FIRST).encode() + b"\xff\n"]
    assert list(read_log([*raw, *lines(extracting(ROOT, SECOND))]).extracted) == [
        Module(FIRST, VERSION),
        Module(SECOND, VERSION),
    ]


def test_pass_names_no_graph_and_counts_as_nothing():
    """T56: PASS twice, while a third graph was never tried."""
    log = read_log(
        lines(
            *(extracting(ROOT, name) for name in (FIRST, SECOND, THIRD)),
            called(FIRST),
            called(SECOND),
            "...Compiler status PASS",
            "Compiler status PASS",
        )
    )
    assert (log.passes, len(log.needed)) == (2, 3)
    assert [module.name for module in log.compiled] == [FIRST, SECOND]
    assert not log.failed


def test_a_failure_has_the_compilers_first_error_also_from_the_line_below():
    here = (
        f"ERROR ||NEURON_CC_WRAPPER||: Failed compilation with ['neuronx-cc', 'model.{FIRST}.neff']: {ERROR}"
    )
    below = (
        f"ERROR ||NEURON_CC_WRAPPER||: Got a cached failed neff at {ROOT}/{VERSION}/{SECOND}/model.neff. "
        "Will skip compilation, please set --retry_failed_compilation for recompilation: "
    )
    log = read_log(lines(*here.splitlines(), below, " [XTP002] Too many instructions after unroll"))
    assert log.failed[Module(FIRST)].startswith("[NLA001]  Unhandled exception")
    assert log.failed[Module(SECOND, VERSION)] == "[XTP002] Too many instructions after unroll"
    assert list(log.poisoned) == [Module(SECOND, VERSION)]


def test_progress_totals_and_exit_codes():
    log = read_log(
        lines(
            "Current remaining items are 18, locked are 1, failed are 0, done are 0, total is 19",
            "Current remaining items are 0, locked are 2, failed are 1, done are 16, total is 19",
            "ERROR ||PARALLEL_COMPILE||: parallel compilation with neuronx-cc exited with error."
            "Received error code: -9",
            "INFO ||NEURON_PARALLEL_COMPILE||: Total graphs: 19",
            "INFO ||NEURON_PARALLEL_COMPILE||: Total successful compilations: 16",
            "INFO ||NEURON_PARALLEL_COMPILE||: Total failed compilations: 3",
        )
    )
    assert log.progress == Progress(0, 2, 1, 16, 19)
    assert log.totals == {"graphs": 19, "successful compilations": 16, "failed compilations": 3}
    assert log.codes == [-9]
    assert log.out_of_memory


def test_a_compiler_that_ended_badly_for_another_reason_is_not_out_of_memory():
    log = read_log(lines("INFO 1332 [root]: Subcommand returned with exitcode=70", "exitcode=0"))
    assert (log.codes, log.out_of_memory) == ([70], False)


def test_waiting_for_a_lock_is_seen():
    log = read_log(
        lines(
            f"[INFO]: Another process must be compiling {ROOT}/{VERSION}/{FIRST}/model.hlo_module.pb, 1 min"
        )
    )
    assert list(log.waited) == [Module(FIRST, VERSION)]


def test_a_mark_behind_graphs_tells_their_phase():
    log = read_log(
        lines(
            extracting(ROOT, FIRST),
            "kitae-graph: train/first 5d8e",
            using(ROOT, SECOND),
            extracting(ROOT, FIRST),
            "kitae-graph: update 77aa",
            extracting(ROOT, THIRD),
        )
    )
    phases = {module.name: phase for module, phase in log.needed.items()}
    assert phases == {FIRST: "train/first", SECOND: "update", THIRD: ""}


@settings(deadline=None, max_examples=60)
@given(st.lists(st.binary(max_size=80), max_size=8), st.integers(0, 8))
def test_no_bytes_around_it_hide_a_graph_or_make_up_one(noise: list[bytes], place: int):
    around = [line.replace(b"\n", b" ").replace(b"MODULE_", b"") + b"\n" for line in noise]
    around.insert(min(place, len(around)), extracting(ROOT, FIRST).encode() + b"\n")
    assert list(read_log(around).needed) == [Module(FIRST, VERSION)]


# ---- the summary


def summary_text(prefix: str = "", **report: object) -> str:
    value = {"compilation_summary": {"true": 1}, "compilation_report": report, "compilation_time": 195.3}
    body = "\n".join(f"{prefix}{line}" for line in json.dumps(value, indent=4).splitlines())
    head = "2026-11-30 20:21:11.000895:  161136  INFO ||NEURON_PARALLEL_COMPILE||: "
    return f"{prefix}{head}{body.removeprefix(prefix)}\n{prefix}{head}Total graphs: 2\n"


GRAPH = f"{ROOT}/{VERSION}/{FIRST}/model.hlo_module.pb"


def test_the_summary_is_read_with_and_without_a_prefix_before_each_line():
    for prefix in ("", "INFO: "):
        text = summary_text(prefix, **{GRAPH: {"status": True, "retry": 1, "compile_time": 9.77}})
        summary = read_summary(f"............\nCompiler status PASS\n{text}")
        assert summary is not None
        assert summary.graphs == {FIRST: Outcome(worked=True, retries=1, seconds=9.77)}
        assert summary.seconds == 195.3


def test_a_failed_graph_stays_failed_however_the_summary_counts():
    text = summary_text(**{GRAPH: {"status": False, "retry": 2}})
    summary = read_summary(text)
    assert summary is not None
    assert summary.graphs == {FIRST: Outcome(worked=False, retries=2)}


def test_the_last_of_several_summaries_counts_and_a_broken_one_does_not():
    first = summary_text(**{GRAPH: {"status": False, "retry": 0}})
    second = summary_text(**{GRAPH: {"status": True, "retry": 1}})
    last = read_summary(first + second)
    assert last is not None
    assert last.graphs[FIRST].worked
    # Lines of other processes in between.
    broken = second.replace('"compilation_report"', '...\n"compilation_report')
    assert read_summary(broken) is None
    assert read_summary(first + broken) == read_summary(first)
    assert read_summary("nothing") is None


def test_numbers_and_summaries_that_are_none_are_passed_over():
    log = read_log([b"exitcode=" + b"9" * 6000 + b"\n", b"exit code: -9\n"])
    assert log.codes[-1] == -9
    assert read_summary("||NEURON_PARALLEL_COMPILE||: " + '{"a":' * 20_000) is None
