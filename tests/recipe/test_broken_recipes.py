"""Every broken recipe is told with file and line, the field, and the way out."""

import pytest

from kitae.errors import RecipeError
from kitae.recipe.load import load_recipe

# name: (text to replace, what to write instead, line, field, part of the message that is the way out)
BROKEN = {
    "unknown key": (
        "duration: 20",
        "durration: 20",
        15,
        "training.durration",
        "did you mean training.duration?",
    ),
    "unknown section": ("optimizer:", "optimiser:", 16, "optimiser", "did you mean optimizer?"),
    "key of another section": ("text_field: body", "seed: 3", 11, "data.train.1.seed", "did you mean seed?"),
    "key like nothing": ("text_field: body", "zzz: 3", 11, "data.train.1.zzz", "the keys here are path, hub"),
    "wrong type": (
        "20 steps",
        "20",
        15,
        "training.duration",
        "20 is not a duration; write it as '200 steps'",
    ),
    "no duration at all": ("20 steps", "", 15, "training.duration", "nothing is not a duration"),
    "not a duration": ("20 steps", "20 stairs", 15, "training.duration", "write it as '200 steps'"),
    "half a step": ("20 steps", "1.5 steps", 15, "training.duration", "not a whole number of steps"),
    "no time": ("20 steps", "0 steps", 15, "training.duration", "write a duration above 0"),
    "text for a number": (
        "1e-4",
        "fast",
        17,
        "optimizer.learning_rate",
        "found 'fast' (text); write a number above 0",
    ),
    "quoted number": (
        "1e-4",
        "'1e-4'",
        17,
        "optimizer.learning_rate",
        "found '1e-4' (text); write a number above 0",
    ),
    "out of range": (
        "1e-4",
        "-1e-4",
        17,
        "optimizer.learning_rate",
        "found -0.0001 (a number); write a number above 0",
    ),
    "not finite": ("1e-4", ".nan", 17, "optimizer.learning_rate", "write a number above 0"),
    "nothing": ("1e-4", "", 17, "optimizer.learning_rate", "found nothing; write a number above 0"),
    "number for text": (
        "name: first",
        "name: 7",
        2,
        "name",
        "found 7 (a whole number); write text, in quotes: '7'",
    ),
    "name that is no folder": ("name: first", "name: a/b", 2, "name", "letters, digits, dots, dashes"),
    "truth for a number": (
        "fraction: 0.1",
        "fraction: true",
        13,
        "data.heldout.fraction",
        "above 0 and below 1",
    ),
    "section without content": (
        "  duration: 20 steps\n",
        "",
        14,
        "training",
        "found nothing; write a mapping",
    ),
    "missing field": (
        "duration: 20 steps",
        "seed: 1",
        14,
        "training.duration",
        "missing; add it: a duration",
    ),
    "missing section": ("name: first\n", "", 1, "name", "missing; add it: text"),
    "two of one kind": (
        "    folder: words",
        "    {folder: words, hub: a}",
        6,
        "data.tokenizer",
        "found folder and hub",
    ),
    "none of one kind": (
        "- path: b.jsonl",
        "- split: x",
        10,
        "data.train.1",
        "exactly one of path, hub; found none",
    ),
    "unknown preset": ("llama-tiny", "lama-tiny", 4, "model.preset", "did you mean llama-tiny"),
    "unknown model": ("preset: llama-tiny", "named: smollm", 4, "model.named", "There are: smollm2-135m"),
    "preset without tokenizer": (
        ":\n    folder: words",
        ": auto",
        6,
        "data.tokenizer",
        "name one with folder, hub",
    ),
    "revision without hub": (
        "folder: words",
        "folder: w\n    revision: v1",
        8,
        "data.tokenizer.revision",
        "take it out",
    ),
    "shape without preset": ("preset: llama-tiny", "hub: a/b\n  shape: {}", 5, "model.shape", "take it out"),
    "heads that do not fit": (
        "tiny\n",
        "tiny\n  shape:\n    num_heads: 3\n",
        6,
        "model.shape.num_heads",
        "set head_dim",
    ),
    "odd heads": ("tiny\n", "tiny\n  shape:\n    head_dim: 5\n", 6, "model.shape.head_dim", "even one"),
    "warm-up too long": (
        "optimizer:",
        "schedule:\n  warmup: 21 steps\noptimizer:",
        17,
        "schedule.warmup",
        "shorten the one",
    ),
    "batches that do not fit": (
        "20 steps",
        "20 steps\n  global_batch_size: 6\n  micro_batch_size: 4",
        17,
        "training.micro_batch_size",
        "change one of them, or write auto",
    ),
    "list for a section": (
        "  duration: 20 steps",
        "  - duration: 20 steps",
        14,
        "training",
        "found a list of 1",
    ),
    "section for a list": (
        "    - path: a.txt\n    - path: b.jsonl\n      text_field: body",
        "    path: a.txt",
        8,
        "data.train",
        "write a non-empty list",
    ),
    "empty list": (
        "optimizer:",
        "proof: {prompts: []}\noptimizer:",
        16,
        "proof.prompts",
        "found an empty list",
    ),
    "short list": ("learning_rate: 1e-4", "betas: [0.9]", 17, "optimizer.betas", "write a list of 2"),
    "wrong entry": (
        "learning_rate: 1e-4",
        "betas: [0.9, 1.5]",
        17,
        "optimizer.betas.1",
        "of at least 0 and below 1",
    ),
    "word that is not one of them": (
        "optimizer:",
        "export: {dtype: fp8}\noptimizer:",
        16,
        "export.dtype",
        "one of auto, fp32",
    ),
    "wrong word beside a number": (
        "20 steps",
        "20 steps\n  micro_batch_size: big",
        16,
        "training.micro_batch_size",
        "or auto",
    ),
    "given twice": ("optimizer:", "training:", 16, "training", "given twice, on lines 14 and 16; keep one"),
    "a number as key": ("optimizer:", "12:", 16, "12", "unknown key"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_is_told_with_its_line_field_and_way_out(case, good, write):
    old, new, line, field, way_out = BROKEN[case]
    assert old in good
    path = write(good.replace(old, new, 1))
    with pytest.raises(RecipeError) as caught:
        load_recipe(path)
    told = [text.strip() for text in str(caught.value).splitlines()]
    mine = [text for text in told if text.startswith(f"{path}:{line}: {field}: ")]
    assert len(mine) == 1, str(caught.value)
    assert way_out in mine[0]
    assert "pydantic" not in str(caught.value)
    assert "http" not in str(caught.value)


NO_RECIPE = {
    "empty": ("", 1, "a recipe begins with 'kitae: 1'"),
    "only a comment": ("# soon\n", 1, "the file is empty"),
    "a list": ("- 1\n", 1, "found a list"),
    "a word": ("hello\n", 1, "found a single value"),
    "no version": ("name: x\n", 1, "put 'kitae: 1'"),
    "newer version": ("# x\nkitae: 2\n", 2, "format 2, and this kitae reads 1; install a newer kitae"),
    "odd version": ("kitae: '1'\n", 1, "write 'kitae: 1'"),
    "true is not a version": ("kitae: true\n", 1, "write 'kitae: 1'"),
    "version zero": ("kitae: 0\n", 1, "write 'kitae: 1'"),
    "a list as key": ("kitae: 1\n? [a]\n: b\n", 2, "a key must be text or a number"),
    "a tab": ("kitae: 1\nmodel:\n\tpreset: x\n", 3, "indent with spaces"),
    "syntax": ("kitae: 1\nname: a: b\n", 2, "not valid YAML"),
    "open bracket": ("kitae: 1\nname: [a\n", 2, "close the bracket that opens there"),
    "two documents": ("kitae: 1\n---\nkitae: 1\n", 2, "a file is one document"),
    "control character": ("kitae: 1\nname: \x07\n", 2, "U+0007"),
    "a tag": ("kitae: 1\nname: !!python/object:os.system x\n", 2, "take it out"),
    "wrong tag": ("kitae: 1\nseed: !!int x\n", 2, "cannot be read as a whole number"),
    "alias of itself": ("kitae: 1\nname: &a [*a]\n", 2, "write the values out"),
    "half a surrogate pair": ('kitae: 1\nname: "\\ud800"\n', 2, "cannot be read as text"),
    "deep": (f"kitae: 1\nname: {'[' * 60}{']' * 60}\n", 2, "nested too deeply"),
}


@pytest.mark.parametrize("case", NO_RECIPE)
def test_what_is_no_recipe_is_told_with_its_line(case, write):
    text, line, way_out = NO_RECIPE[case]
    path = write(text)
    with pytest.raises(RecipeError) as caught:
        load_recipe(path)
    message = str(caught.value)
    assert message.startswith(f"{path}:{line}: ")
    assert way_out in message
    assert "\n" not in message


def test_very_deep_nesting_is_an_error_of_the_recipe(write):
    with pytest.raises(RecipeError, match="nested too deeply"):
        load_recipe(write("[" * 5000))


def test_aliases_that_explode_are_stopped(write):
    levels = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9))
    with pytest.raises(RecipeError, match="too many of them"):
        load_recipe(write(f"kitae: 1\na0: &a0 x\n{levels}\n"))


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(RecipeError, match="no such file"):
        load_recipe(tmp_path / "none.yaml")
    with pytest.raises(RecipeError, match="this is a folder"):
        load_recipe(tmp_path)
    (tmp_path / "sjis.yaml").write_bytes("name: 鍛え".encode("shift_jis"))
    with pytest.raises(RecipeError, match=r"sjis\.yaml:1: byte 6 is not UTF-8"):
        load_recipe(tmp_path / "sjis.yaml")


def test_all_mistakes_are_told_at_once_in_the_order_of_the_file(good, write):
    text = good.replace("fraction: 0.1", "fraction: 2").replace("1e-4", "fast").replace("20 steps", "soon")
    with pytest.raises(RecipeError) as caught:
        load_recipe(write(text))
    head, *lines = str(caught.value).splitlines()
    assert head == "3 things are wrong:"
    assert [line.split(": ")[1] for line in lines] == [
        "data.heldout.fraction",
        "training.duration",
        "optimizer.learning_rate",
    ]
