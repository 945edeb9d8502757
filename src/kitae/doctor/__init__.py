"""Whether this machine, a recipe and a tokenizer are fit for each other: a table of checks, in `checks`."""
