import pytest

from kitae.errors import RecipeError
from kitae.recipe.yaml_positions import parse, read_text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4), ("3.0e-4", 3e-4), (".5", 0.5), ("1.", 1.0), ("-1", -1), ("+2", 2), ("010", 10),
        ("0o10", 8), ("0x1F", 31), (".inf", float("inf")), ("-.INF", float("-inf")),
        ("true", True), ("FALSE", False), ("null", None), ("~", None), ("", None), ("no", "no"), ("on", "on"),
        ("Yes", "Yes"), ("1_000", "1_000"), ("12:30:00", "12:30:00"), ("2026-11-30", "2026-11-30"),
        ("'1'", "1"), ("!!str 1", "1"), ("!!float 1", 1.0), ("[1, a]", [1, "a"]),
        ("{a: {b: 2}}", {"a": {"b": 2}}), ("~/x", "~/x"),
    ],
)  # fmt: skip
def test_scalars_are_those_of_yaml_1_2(text, value):
    assert parse(text, "x").value == value
    assert type(parse(text, "x").value) is type(value)


def test_every_key_and_entry_has_its_line():
    document = parse("a: 1\nb:\n  # why\n  - c: 2\n    d: 3\n  - 4\n<<: {e: 5}\n", "x")
    assert document.value == {"a": 1, "b": [{"c": 2, "d": 3}, 4], "<<": {"e": 5}}
    assert document.lines == {
        ("a",): 1, ("b",): 2, ("b", 0): 4, ("b", 0, "c"): 4, ("b", 0, "d"): 5, ("b", 1): 6,
        ("<<",): 7, ("<<", "e"): 7,
    }  # fmt: skip


def test_lines_are_right_with_windows_line_ends_and_a_byte_order_mark(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n")
    document = parse(read_text(path), "x")
    assert (document.value, document.lines) == ({"a": 1, "b": 2}, {("a",): 1, ("b",): 2})


def test_an_alias_repeats_its_value_and_keeps_the_line_of_where_it_is_used():
    document = parse("a: &x [1, 2]\nb: *x\n", "x")
    assert document.value == {"a": [1, 2], "b": [1, 2]}
    assert document.lines[("b",)] == 2


def test_a_single_value_is_told_without_a_line():
    with pytest.raises(RecipeError, match=r"^--set a=\[: not valid YAML"):
        parse("[", "--set a=[", numbered=False)
