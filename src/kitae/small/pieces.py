"""Small tokenizers over the small text, each of a kind that real models have. The same bytes each time."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from kitae.recipe.small_inputs import Pieces
from kitae.small.text import paragraphs

SIZE = 2048
"""Pieces, at most; divides by any number of ranks that there are here."""
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
BEGIN, END = "<|begin_of_text|>", "<|end_of_text|>"
_ROLES = {f"{token[1:-1].lower()}_token": token for token in SPECIAL}
_TIMES = 2
"""A word that occurs less often gets no piece of its own."""


def tokenizer_files(pieces: Pieces) -> dict[str, bytes]:
    """The files of the tokenizer's folder, by name."""
    return _KINDS[pieces.kind](pieces)


def token_ids(pieces: Pieces) -> dict[str, int]:
    """Fields of config.json that name tokens, and how many there are."""
    special = {"bos_token_id": 0, "eos_token_id": 1} if pieces.kind == "bpe" else {"pad_token_id": 0}
    return {"vocab_size": SIZE, **special}


def _as_json(values: Mapping[str, Any]) -> bytes:
    return (json.dumps(values, ensure_ascii=False, indent=2) + "\n").encode()


def _bpe(pieces: Pieces) -> dict[str, bytes]:
    """Byte-level BPE that puts a begin token before a document, as Llama 3 has it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE,
        special_tokens=[BEGIN, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(paragraphs("english", "train"), trainer)
    backend.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN} $A", pair=f"{BEGIN} $A {BEGIN} $B", special_tokens=[(BEGIN, 0)]
    )
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": BEGIN, "eos_token": END}
    return {"tokenizer.json": backend.to_str().encode(), "tokenizer_config.json": _as_json(settings)}


def _wordpiece(pieces: Pieces) -> dict[str, bytes]:
    """BERT's own kind, in small letters."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    split = pre_tokenizers.BertPreTokenizer()
    texts = (text.lower() for text in paragraphs("english", "train"))
    words = (word for text in texts for word, _ in split.pre_tokenize_str(text))
    known = vocabulary(words)
    backend = Tokenizer(models.WordPiece(known, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = split
    backend.add_special_tokens(list(SPECIAL))
    ends = [(token, known[token]) for token in ("[CLS]", "[SEP]")]
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends
    )
    settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": True, **_ROLES}
    return {
        "tokenizer.json": backend.to_str().encode(),
        "vocab.txt": _lines(known),
        "tokenizer_config.json": _as_json(settings),
    }


def _mecab(pieces: Pieces) -> dict[str, bytes]:
    """Pieces of MeCab's words, as the Japanese BERTs have them."""
    from kitae.data.dictionary import find_dictionary
    from kitae.data.japanese import open_mecab

    assert pieces.dictionary is not None
    tagger = open_mecab(find_dictionary(pieces.dictionary))
    texts = paragraphs("japanese", "train")
    known = vocabulary(node.surface for text in texts for node in tagger(text))
    settings = {
        "tokenizer_class": "BertJapaneseTokenizer",
        "word_tokenizer_type": "mecab",
        "subword_tokenizer_type": "wordpiece",
        "mecab_kwargs": {"mecab_dic": pieces.dictionary},
        "do_lower_case": False,
        **_ROLES,
    }
    return {"vocab.txt": _lines(known), "tokenizer_config.json": _as_json(settings)}


def vocabulary(words: Iterable[str]) -> dict[str, int]:
    """Special tokens, letters, and the commonest words, filled up to `SIZE` with unused ones."""
    counts = Counter(words)
    letters = sorted({letter for word in counts for letter in word})
    common = sorted(
        (word for word in counts if counts[word] >= _TIMES), key=lambda word: (-counts[word], word)
    )
    ordered = dict.fromkeys([*SPECIAL, *letters, *(f"##{letter}" for letter in letters), *common])
    filled = [*ordered, *(f"[unused{number}]" for number in range(SIZE))]
    return {piece: number for number, piece in enumerate(filled[:SIZE])}


def _lines(known: Mapping[str, int]) -> bytes:
    return "".join(f"{piece}\n" for piece in known).encode()


_KINDS = {"bpe": _bpe, "wordpiece": _wordpiece, "mecab": _mecab}
