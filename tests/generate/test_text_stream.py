import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_tokenizer import SENTENCES, train_backend
from tokenizers import Tokenizer, decoders, models

from kitae.generate.text import TextStream

BACKEND = train_backend()
BYTES = Tokenizer(models.BPE(vocab={f"<0x{n:02X}>": n for n in range(256)}, merges=[]))
BYTES.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])


def decode(ids):
    return BACKEND.decode(list(ids), skip_special_tokens=True)


def byte_decode(ids):
    return bytes(ids).decode("utf-8", "replace")


def pieces(stream, ids):
    shown = []
    for token in ids:
        shown.append(stream.push(token))
        if stream.stopped:
            break
    return [*shown, stream.finish()]


@settings(deadline=None, max_examples=80)
@given(st.sampled_from(SENTENCES), st.sampled_from(SENTENCES), st.integers(0, 30))
def test_pieces_make_the_text_whatever_the_tokens(prompt, text, cut):
    """Tokens of kana and kanji are bytes of them: no piece has half of a character."""
    before, ids = BACKEND.encode(prompt).ids, BACKEND.encode(text).ids
    stream = TextStream(decode, before)
    shown = pieces(stream, ids)
    assert "".join(shown) == text == stream.text
    assert not any("\N{REPLACEMENT CHARACTER}" in piece for piece in shown)


@settings(deadline=None, max_examples=120)
@given(st.text(alphabet="abc🙂é日", max_size=14), st.text(alphabet="ab🙂日", min_size=1, max_size=3))
def test_a_stop_text_is_found_across_tokens_and_inside_characters(text, stop):
    """Every token is one byte."""
    stream = TextStream(byte_decode, [], [stop])
    shown = "".join(pieces(stream, text.encode()))
    assert shown == stream.text == text.partition(stop)[0]
    assert stream.stopped == (stop in text)


def test_the_earliest_of_several_stop_texts_ends_the_text():
    stream = TextStream(byte_decode, [], ["xyz", "b", "bc"])
    assert "".join(pieces(stream, b"aaxybcxyz")) == "aaxy"
    assert stream.push(ord("q")) == ""


def test_what_may_become_a_stop_text_is_held_back_no_longer_than_it_may():
    stream = TextStream(byte_decode, [], ["aab"])
    assert [stream.push(one) for one in b"xaaac"] == ["x", "", "", "a", "aac"]
    assert stream.finish() == ""


def test_bytes_that_are_no_character_are_shown_as_such_and_hold_up_nothing():
    stream = TextStream(byte_decode, [])
    assert "".join(stream.push(one) for one in b"a\xff\xff\xff\xffbc") == "a\ufffd\ufffd\ufffd\ufffdbc"


def test_an_unfinished_character_at_the_end_is_left_out():
    stream = TextStream(byte_decode, [])
    assert "".join(pieces(stream, "日本".encode()[:-1])) == "日"


def test_a_blank_before_the_first_new_word_is_kept():
    """Decoders of the SentencePiece kind drop it at the beginning of what they decode."""
    backend = Tokenizer(models.BPE(vocab={"▁a": 0, "▁b": 1}, merges=[]))
    backend.decoder = decoders.Metaspace()
    stream = TextStream(backend.decode, [0])
    assert stream.push(1) == " b"


def test_special_tokens_give_no_text():
    end = BACKEND.token_to_id("<e>")
    ids = BACKEND.encode("space").ids
    assert "".join(pieces(TextStream(decode, []), [*ids, end, *ids])) == "spacespace"


@pytest.mark.parametrize("length", [0, 1, 2])
def test_byte_fallback_tokens_wait_for_their_character(length):
    stream = TextStream(BYTES.decode, [])
    assert [stream.push(one) for one in "日".encode()[:length]] == [""] * length
