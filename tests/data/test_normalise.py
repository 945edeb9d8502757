import unicodedata

import pytest

from kitae.data.normalise import clean, unicode_version

VOICED = "がぎぐげござじずぜぞだぢづでどばびぶべぼぱぴぷぺぽ"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\uff76\uff9e", "\u30ac"),
        ("\uff21", "A"),
        ("\u337b", "\u5e73\u6210"),
        ("\ufe30", ".."),
        ("a\u3000b", "a\u0020b"),
    ],
)
def test_nfkc_values(text, expected):
    """T33."""
    assert clean(text, "nfkc") == (expected, True)
    assert clean(text, "nfc") == (text, False)
    assert clean(text, "none") == (text, False)


@pytest.mark.parametrize("normalisation", ["none", "nfc", "nfkc"])
def test_voiced_kana_stay_voiced(normalisation):
    """T32: all 25 voiced and semi-voiced kana, and the decomposed form meets the composed one."""
    assert clean(VOICED, normalisation) == (VOICED, False)
    if normalisation != "none":
        assert clean(unicodedata.normalize("NFD", VOICED), normalisation) == (VOICED, True)


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\n\n\r\n"])
def test_newlines_at_the_ends_are_cut_off(ends):
    """T36, and an ideographic indent stays."""
    assert clean(f"{ends}\u3000text\n\nmore {ends}", "none") == ("\u3000text\n\nmore ", False)


def test_unicode_version_matters_only_when_something_is_normalised():
    assert unicode_version("none") is None
    assert unicode_version("nfkc") == unicodedata.unidata_version
