import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kitae.data.sentences import by_line, by_punctuation


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        (
            'Mr. Darcy came. He said "No!" and left. It was 3.14 exactly...',
            ["Mr. Darcy came.", 'He said "No!" and left.', "It was 3.14 exactly..."],
        ),
        ("J. Austen wrote it. I am I. So be it.", ["J. Austen wrote it.", "I am I.", "So be it."]),
        ("See e.g. Fig. 3 of it. U.S. troops went!", ["See e.g. Fig. 3 of it.", "U.S. troops went!"]),
        ("She asked (why?) and left. (Really.) Yes.", ["She asked (why?) and left.", "(Really.)", "Yes."]),
        ("1. First\n2. Second", ["1. First\n2. Second"]),
        ("I said no. Then I left.", ["I said no.", "Then I left."]),
        ("今日は晴れ。明日は雨！本当？！はい。", ["今日は晴れ。", "明日は雨！", "本当？！", "はい。"]),
        (
            "彼は「行く。必ず行く。」と言った。そして（注。参照）去った。",
            ["彼は「行く。必ず行く。」と言った。", "そして（注。参照）去った。"],
        ),
        ("「行くよ。」「うん。」", ["「行くよ。」", "「うん。」"]),
        ("「開いたまま。次の文。", ["「開いたまま。", "次の文。"]),
        ("改行で\n折り返す文。\n\n次の段落\n \n\n終わり", ["改行で\n折り返す文。", "次の段落", "終わり"]),
        ("日本語。English follows. 混在！ok", ["日本語。", "English follows.", "混在！", "ok"]),
        ("no end at all", ["no end at all"]),
        (" \n\n ", []),
        ("", []),
        ("。", ["。"]),
    ],
)
def test_where_sentences_end(text, sentences):
    assert by_punctuation(text) == sentences


def test_a_long_quotation_is_split():
    quoted = "「" + "とても長い話です。" * 50 + "」"
    assert len(by_punctuation(quoted)) == 50


def test_one_sentence_a_line():
    assert by_line("First. Still first.\n\n  second \n") == ["First. Still first.", "second"]


@settings(deadline=None, max_examples=200)
@given(st.text("ab AI.!?…。！「」『』()\"'\n1", max_size=60))
def test_nothing_but_white_space_is_lost(text):
    for split in (by_punctuation, by_line):
        sentences = split(text)
        assert all(sentence == sentence.strip() != "" for sentence in sentences)
        assert "".join("".join(sentences).split()) == "".join(text.split())
