"""Where a recipe runs: what is accepted, what follows from nodes and processes, and what has no effect."""

import pytest

from kitae.cli.elsewhere import flags_of
from kitae.errors import RecipeError
from kitae.recipe.load import load_recipe
from kitae.recipe.resolve import Machine, dump_resolved, resolve, usable_nodes
from kitae.recipe.target import seconds_of

SLURM = "target.kind=slurm"


def error_of(path, *flags):
    with pytest.raises(RecipeError) as raised:
        load_recipe(path, flags)
    return str(raised.value)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 5400),
        ("90:30", 5430),
        ("12:00:00", 43200),
        ("2-12", 216000),
        ("1-01:30", 91800),
        ("1-01:30:05", 91805),
    ],
)
def test_times_are_read_as_slurm_reads_them(text, seconds, write):
    """The forms that sbatch(1) lists under --time."""
    assert seconds_of(text) == seconds
    recipe = load_recipe(write(), [SLURM, f"target.time_limit='{text}'"]).recipe
    assert recipe.target.time_limit == text


def test_what_cannot_be_is_told_with_the_way_out(write):
    path = write()
    assert "target.nodes: several nodes need target.kind slurm" in error_of(path, "target.nodes=3")
    assert "at most 100000" in error_of(path, SLURM, "target.nodes=99999999")
    assert "target.nodes.min: 4 is more than max (2)" in error_of(
        path, SLURM, "target.nodes={min: 4, max: 2}"
    )
    assert "target.host: target.kind ssh needs it: the head node" in error_of(path, "target.kind=ssh")
    assert "kitae sets --nodes itself; write target.nodes" in error_of(
        path, SLURM, "target.extra=[--nodes=3]"
    )
    assert "kitae sets --time itself; write target.time_limit" in error_of(
        path, SLURM, "target.extra=['--time=3']"
    )
    assert "is no long option of sbatch" in error_of(path, SLURM, "target.extra=[-N 3]")
    assert "is no long option of sbatch" in error_of(path, SLURM, 'target.extra=["--mem=1\\nrm -rf /"]')
    assert "target.time_limit" in error_of(path, SLURM, "target.time_limit=soon")
    assert "did you mean target.partition?" in error_of(path, SLURM, "target.partitoin=x")


def test_a_range_leaves_the_copies_to_the_nodes(write):
    path, several = write(), "target.nodes={min: 2, max: 4}"
    assert "parallel.data_parallel_size: must be auto" in error_of(
        path, SLURM, several, "parallel.data_parallel_size=4"
    )
    assert "set parallel.keep_global_batch to true" in error_of(
        path, SLURM, several, "parallel.keep_global_batch=false"
    )


def resolved(path, *flags, backend="cuda", devices=8):
    return resolve(load_recipe(path, flags).recipe, backend=backend, devices=devices).recipe


def test_copies_follow_from_nodes_and_processes(write):
    """Section 2.1 of the Neuron facts: 4 nodes of 32 cores at tensor parallel 32 are 4 copies."""
    flags = [SLURM, "target.nodes=4", "parallel.tensor_parallel_size=32", "training.global_batch_size=1024"]
    recipe = resolved(write(), *flags, backend="neuron", devices=32)
    assert (recipe.parallel.data_parallel_size, recipe.target.processes_per_node) == (4, 32)
    assert resolve(recipe, backend="neuron", devices=1).recipe == recipe
    recipe = resolved(
        write(), SLURM, "target.nodes=2", "target.processes_per_node=4", backend="cpu", devices=2
    )
    assert recipe.parallel.data_parallel_size == 8
    assert resolved(write(), SLURM, "target.nodes=2", backend="cpu").parallel.data_parallel_size == 2


def test_without_a_target_nothing_changes(write):
    recipe = resolved(write(), "training.global_batch_size=12")
    assert (recipe.parallel.data_parallel_size, recipe.target.processes_per_node) == (6, "auto")


def test_processes_that_do_not_agree_are_refused(write):
    path = write()
    with pytest.raises(RecipeError, match="2 x 3 are not the 4 processes that parallel asks for"):
        resolved(
            path,
            SLURM,
            "target.nodes=2",
            "target.processes_per_node=3",
            "parallel.data_parallel_size=4",
        )
    with pytest.raises(RecipeError, match=r"4 processes .* shared out to 3 nodes"):
        resolved(path, SLURM, "target.nodes=3", "parallel.data_parallel_size=4")


def test_as_many_nodes_are_used_as_share_the_batch_evenly(write):
    """The same global batch on 2, 3 or 4 nodes; three that cannot share 8 rows leave one idle."""
    flags = [SLURM, "target.nodes={min: 2, max: 4}", "target.processes_per_node=1"]
    machine = Machine("cpu", 2)
    recipe = load_recipe(write(), flags).recipe  # 8 rows
    assert [usable_nodes(recipe, there, machine) for there in (2, 3, 4)] == [2, 2, 4]
    recipe = load_recipe(write(), [*flags, "training.global_batch_size=12"]).recipe
    assert [usable_nodes(recipe, there, machine) for there in (2, 3, 4, 5)] == [2, 3, 4, 4]
    recipe = load_recipe(write(), [*flags, "training.global_batch_size=7"]).recipe
    with pytest.raises(RecipeError, match="up to 4 nodes, 1 can"):
        usable_nodes(recipe, 3, machine)


def test_what_has_no_effect_is_said(write):
    def warnings(*flags):
        return resolve(load_recipe(write(), flags).recipe, backend="cpu").warnings

    assert warnings("target.partition=x") == ("target.partition: has no effect with target.kind local",)
    assert warnings(SLURM, "target.host=x") == ("target.host: has no effect with target.kind slurm",)
    assert "leave nothing of the time limit" in warnings(SLURM, "target.time_limit='2'")[0]
    assert warnings(SLURM, "target.time_limit='10'", "target.nodes=2", "target.exclusive=false") == ()


def test_options_become_flags(write):
    assert flags_of(None, None) == []
    assert flags_of("local", None) == ["target.kind=local", "target.nodes=1"]
    assert flags_of("slurm", "3") == ["target.kind=slurm", "target.nodes=3"]
    loaded = load_recipe(write(), flags_of("slurm", "2-4"))
    assert (loaded.recipe.target.least, loaded.recipe.target.most) == (2, 4)
    text = dump_resolved(loaded.recipe)
    again = load_recipe(write(text))
    assert again.recipe == loaded.recipe
