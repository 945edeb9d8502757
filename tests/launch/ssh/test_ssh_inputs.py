"""Which files a recipe needs, and what it says there."""

import hashlib

import pytest
import yaml

from kitae.data.hashing import HashCache
from kitae.errors import RecipeError
from kitae.launch.ssh.inputs import Inputs, refuse_missing
from kitae.recipe.load import load_recipe
from kitae.recipe.paths import with_absolute_paths, with_paths

FILES = (
    *(
        "model/config.json",
        "model/model.safetensors",
        "model/tokenizer.json",
        "model/checkpoint-5/optimizer.pt",
    ),
    *("text/a.txt", "text/more/b.txt", "text/.hidden.txt", "text/c.md"),
)


@pytest.fixture
def folder(tmp_path):
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


def there(folder, **sections):
    values = {
        "kitae": 1,
        "name": "x",
        "model": {"folder": "model"},
        "data": {"train": [{"path": "text"}]},
        "training": {"duration": "1 steps", "global_batch_size": 1},
        **sections,
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(values))
    loaded = load_recipe(folder / "recipe.yaml")
    inputs = Inputs(HashCache(None), "/far/off")
    return with_paths(with_absolute_paths(loaded.recipe, loaded.base), inputs.place), inputs


def names(inputs, path):
    """Files in the folder there that a path leads into."""
    at = "/".join(path.removeprefix("/far/off/").split("/")[:2])
    return sorted(inputs.folders[at])


def test_a_folder_of_text_goes_as_it_is_but_for_what_is_hidden(folder):
    recipe, inputs = there(folder)
    path = recipe.data.train[0].path
    assert path.startswith("/far/off/inputs/")
    assert path.endswith("/text")
    assert names(inputs, path) == ["text/a.txt", "text/c.md", "text/more/b.txt"]


def test_a_model_goes_without_the_folders_in_it(folder):
    recipe, inputs = there(folder)
    assert names(inputs, recipe.model.folder) == [
        f"model/{n}" for n in ("config.json", "model.safetensors", "tokenizer.json")
    ]


def test_a_tokenizer_goes_without_weights(folder):
    recipe, inputs = there(folder, data={"train": [{"path": "text"}], "tokenizer": {"folder": "model"}})
    assert names(inputs, recipe.data.tokenizer.folder) == ["model/config.json", "model/tokenizer.json"]


def test_a_pattern_stays_one(folder):
    recipe, inputs = there(folder, data={"train": [{"path": "text/**/*.txt"}]})
    path = recipe.data.train[0].path
    assert path.endswith("/**/*.txt")
    assert names(inputs, path) == ["a.txt", "more/b.txt"]


def test_one_file_and_held_out_text(folder):
    data = {
        "train": [{"path": "text/a.txt"}],
        "heldout": {"sources": [{"path": "text/c.md", "format": "text"}]},
    }
    recipe, inputs = there(folder, data=data)
    assert names(inputs, recipe.data.train[0].path) == ["a.txt"]
    assert recipe.data.heldout.sources[0].path.endswith("/c.md")
    digest = hashlib.sha256(b"text/a.txt").hexdigest()
    assert inputs.objects[digest] == folder / "text/a.txt"


def test_the_same_content_has_the_same_place_and_other_content_another(folder):
    first, _ = there(folder)
    assert there(folder)[0] == first
    (folder / "text/a.txt").write_text("new")
    assert there(folder)[0].data.train[0].path != first.data.train[0].path
    assert there(folder)[0].model == first.model


def test_a_path_that_leads_nowhere_here_may_lead_somewhere_there(folder):
    recipe, inputs = there(folder, data={"train": [{"path": "/fsx/text/*.jsonl"}, {"path": "/fsx/x.txt"}]})
    assert recipe.data.train[0].path == "/fsx/text/*.jsonl"
    assert inputs.only_there == ["/fsx/text/*.jsonl", "/fsx/x.txt"]
    refuse_missing(inputs.only_there, inputs.only_there, "head")
    with pytest.raises(RecipeError, match=r"^/fsx/x.txt: no such file or folder, neither here nor on head"):
        refuse_missing(inputs.only_there, ["/fsx/text/*.jsonl"], "head")


def test_a_run_on_that_head_node_is_used_there(folder):
    recipe, inputs = there(folder, model={"run": "runs/before"})
    assert inputs.only_there == [str(folder / "runs/before")]
    inputs = Inputs(HashCache(None), "/far/off", lambda path: f"/far/off/runs/{path.name}")
    assert with_paths(recipe, inputs.place).model.run == "/far/off/runs/before"
