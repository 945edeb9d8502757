"""Reports on runs: what is told (`contents`), in `blocks`, written as HTML (`html`) or as Markdown."""
