import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kitae.parallel import cuts
from kitae.parallel.assembly import assemble, full_box, pieces_of
from kitae.parallel.cuts import Place
from kitae.parallel.layout import Box, ParameterLayout, Piece


def numbered(shape):
    """A tensor in which every element is its own number, from 1."""
    return torch.arange(1, torch.Size(shape).numel() + 1, dtype=torch.float64).view(shape)


def table(case, place):
    """Every kind of cut, in parameters of sizes drawn by hypothesis."""
    heads, kv, dim, hidden, inner = case["heads"], case["kv"], case["dim"], case["hidden"], case["inner"]
    vocabulary = (case["vocabulary"], hidden)
    return [
        ParameterLayout("embed", (cuts.vocabulary("embed", vocabulary, place),)),
        ParameterLayout("norm", (cuts.replicated("norm", (hidden,), place),)),
        *(
            ParameterLayout(
                f"qkv{len(tail)}",
                (
                    cuts.query_heads(f"q{len(tail)}", (heads * dim, *tail), heads, place),
                    cuts.kv_heads(f"k{len(tail)}", (kv * dim, *tail), kv, place),
                    cuts.kv_heads(f"v{len(tail)}", (kv * dim, *tail), kv, place),
                ),
            )
            for tail in ((hidden,), ())
        ),
        ParameterLayout("out", (cuts.head_columns("o", (hidden, heads * dim), heads, place),)),
        ParameterLayout(
            "gate_up", tuple(cuts.column(name, (inner, hidden), place) for name in ("gate", "up"))
        ),
        ParameterLayout("down", (cuts.row("down", (hidden, inner), place),)),
        ParameterLayout(
            "side", tuple(cuts.row(name, (hidden, inner), place) for name in ("left", "right")), concat_dim=1
        ),
    ]


@st.composite
def cases(draw):
    tp_size = draw(st.sampled_from([1, 2, 4, 8]))
    kv = draw(st.sampled_from([1, 2, 4, 8, 16]))
    heads = kv * draw(st.integers(1, 3)) * max(1, tp_size // kv)
    small = st.integers(1, 5)
    sizes = {"heads": heads, "kv": kv, "dim": draw(st.sampled_from([2, 4, 6])), "hidden": draw(small)}
    return tp_size, {**sizes, "inner": tp_size * draw(small), "vocabulary": draw(st.integers(1, 40))}


@settings(deadline=None, max_examples=60)
@given(cases())
def test_layout_is_a_bijection(drawn):
    """Over the ranks, boxes cover every element exactly `replicas` times, and come back bit-equal."""
    tp_size, case = drawn
    tables = [table(case, Place(tp_size, rank)) for rank in range(tp_size)]
    shapes = {piece.tensor: piece.full_shape for layout in tables[0] for piece in layout.pieces}
    full = {name: numbered(shape) for name, shape in shapes.items()}
    covered = {name: torch.zeros(shape) for name, shape in shapes.items()}
    restored = {name: torch.zeros_like(tensor) for name, tensor in full.items()}
    replicas = {}
    for layouts in tables:
        for layout in layouts:
            local = assemble(layout, lambda name, box: full[name][box.slices()], torch.float64)
            assert tuple(local.shape) == layout.shape
            for name, box, values in pieces_of(layout, local):
                assert tuple(values.shape) == box.shape
                covered[name][box.slices()] += 1
                restored[name][box.slices()] = values
            replicas.update({piece.tensor: piece.replicas for piece in layout.pieces})
    for name, tensor in full.items():
        assert (covered[name] == replicas[name]).all(), name
        assert torch.equal(restored[name], tensor), name


def test_each_rank_holds_half_of_gate_and_half_of_up():
    """T10: gate all ones, up all twos; never one of them whole on one rank."""
    full = {"gate": torch.ones(4, 3), "up": torch.full((4, 3), 2.0)}
    for rank in range(2):
        pieces = tuple(cuts.column(name, (4, 3), Place(2, rank)) for name in full)
        layout = ParameterLayout("gate_up", pieces)
        local = assemble(layout, lambda name, box: full[name][box.slices()], torch.float32)
        assert local[:, 0].tolist() == [1, 1, 2, 2]


def test_grouped_order_of_the_fused_projection():
    """4 query heads and 2 KV heads of size 1 on 2 ranks: q 0 1, k 0, v 0 and q 2 3, k 1, v 1."""
    full = {"q": torch.arange(4.0), "k": torch.arange(10.0, 12), "v": torch.arange(20.0, 22)}
    locals_ = []
    for rank in range(2):
        place = Place(2, rank)
        pieces = (
            cuts.query_heads("q", (4,), 4, place),
            *(cuts.kv_heads(name, (2,), 2, place) for name in "kv"),
        )
        layout = ParameterLayout("qkv", pieces)
        locals_.append(assemble(layout, lambda name, box: full[name][box.slices()], torch.float32).tolist())
    assert locals_ == [[0, 1, 10, 20], [2, 3, 11, 21]]


def test_padding_is_zero_and_never_read():
    def read(name, box):
        assert box.start[0] + box.shape[0] <= 9
        assert box.shape[0] > 0
        return torch.ones(box.shape)

    layouts = [ParameterLayout("e", (cuts.vocabulary("e", (9, 2), Place(4, rank)),)) for rank in range(4)]
    locals_ = [assemble(layout, read, torch.float32) for layout in layouts]
    assert torch.cat(locals_)[:, 0].tolist() == [1] * 9 + [0] * 3
    assert [len(list(pieces_of(layout, local))) for layout, local in zip(layouts, locals_, strict=True)] == [
        1,
        1,
        1,
        0,
    ]


def test_pieces_are_views_and_dtype_is_cast():
    layout = ParameterLayout(
        "qkv", (cuts.column("a", (4, 2), Place(1, 0)), cuts.column("b", (2, 2), Place(1, 0)))
    )
    local = assemble(layout, lambda name, box: torch.ones(box.shape, dtype=torch.float64), torch.bfloat16)
    assert local.dtype == torch.bfloat16
    for _, _, values in pieces_of(layout, local):
        values.zero_()
    assert (local == 0).all()


def test_box_that_is_no_run_of_the_full_tensor_is_refused():
    scattered = Piece("w", (8, 2), (2, 4, 2), Box((0, 1, 0), (2, 2, 2)), (4, 2))
    with pytest.raises(AssertionError, match="one run"):
        full_box(scattered)
