# ruff: noqa: E501 - a table
"""Row 41: files that are no YAML, or say what no cluster file says: each with file, line and the way out."""

from __future__ import annotations

import pytest
from cluster_case import GOOD, write_cluster

from kitae.cli.main import main


def instead(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


# The line that is to be mended, words of the way out, and the file.
BROKEN = {
    "tab": (6, "indent with spaces", instead("  ssh_key", "\tssh_key")),
    "quote that is not closed": (2, "close the quote", instead("name: llama", 'name: "llama')),
    "bracket that is not closed": (7, "close the bracket", instead("7/32]", "7/32")),
    "indentation": (11, "indent lines that belong together alike", instead("    max", "   max")),
    "no colon": (3, "write `key: value`", instead("region: us-west-2", "region us-west-2")),
    "no space": (11, "with a colon and a space", instead("max: 4", "max:4")),
    "key twice": (4, "keep one of them", instead("region: us-west-2\n", "region: us-west-2\nregion: eu-west-1\n")),
    "reference": (4, "quote a value that begins with *", instead("usw2-az4", "*zone")),
    "at sign": (2, "quote a value", instead("llama", "@llama")),
    "colon in a value": (15, "quote a value with a colon", instead("12 hours", "2026: 12")),
    "dash without a space": (10, "indent lines alike", instead("  - name", "  -name")),
    "two documents": (17, "take '---' out", f"{GOOD}---\nname: x\n"),
    "program": (3, "take it out", instead("us-west-2", "!!python/object:os.system x")),
    "list": (1, "begins with 'kitae_cluster: 1'", "- a\n- b\n"),
    "mapping for a list": (8, "write a non-empty list", instead("  - name: train\n    ", "  name: train\n  ").replace("    max", "  max")),
    "nothing": (2, "write text", instead("name: llama", "name:")),
    "text for a number": (13, "write a whole number", instead("size_gb: 1200", "size_gb: yes")),
    "curly quotes": (2, "small letters, digits and dashes", instead("llama", "“llama”")),
    "unknown section": (12, "did you mean fsx", instead("fsx:", "fsxx:")),
    "wrong place": (6, "queues[].efa", instead("head:\n", "head:\n  efa: true\n")),
    "not UTF-8": (2, "save the file as UTF-8", None),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
@pytest.mark.parametrize("verb", ["check", "up"])
def test_a_broken_file_is_told_with_line_and_way_out(what, verb, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")  # nobody is asked
    line, way_out, text = BROKEN[what]
    path = write_cluster(tmp_path, text or "")
    if text is None:
        path.write_bytes(b"kitae_cluster: 1\nname: \xff\xfe\n")
    assert main(["cluster", verb, str(path)]) == 2
    said = capsys.readouterr().err
    assert f"cluster.yaml:{line}: " in said
    assert way_out in said
    assert "Traceback" not in said
