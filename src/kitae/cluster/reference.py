"""The reference of the cluster file, made from its schema."""

from __future__ import annotations

from kitae.cluster.check import RULES
from kitae.cluster.schema import FORMAT, ClusterFile
from kitae.recipe.reference import section_tables

_INTRODUCTION = f"""\
# The cluster file

A cluster file is one YAML file that begins with `kitae_cluster: {FORMAT}`. `kitae cluster init` writes one
with comments, and `kitae cluster check` says what is wrong with it. It says what is rented; a recipe
says what is trained there.

- An unknown key is an error. Times are such as `2026-12-24T18:00Z` (UTC without a zone), lengths such as
  `12 hours`.
- `--set section.key=value` changes any value from the command line; list entries go by number
  (`--set queues.0.max=2`).

This page is made from the schema by `make docs`.
"""


def reference_markdown() -> str:
    """The page docs/cluster-file.md."""
    tables = section_tables("The whole file", "", ClusterFile, {})
    return "\n".join([_INTRODUCTION, *tables, *_rules()])


def _rules() -> list[str]:
    head = [
        "## Rules",
        "",
        "What `kitae cluster check` looks at, without an account:",
        "",
        "| rule | what must be so |",
    ]
    rows = [f"| `{name}` | {(rule.__doc__ or '').strip()} |" for name, rule in RULES.items()]
    return [*head, "|---|---|", *rows, ""]
