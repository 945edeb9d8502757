"""A WordPiece vocabulary over MeCab's words, and the files of a `BertJapaneseTokenizer` with it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from unicodedata import normalize

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from kitae.data.dictionary import find_dictionary
from kitae.data.japanese import open_mecab
from kitae.storage.files import write_synced

DICTIONARY = "ipadic"
"""A fifth of unidic-lite's size, and what cl-tohoku's models use."""
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MIN_FREQUENCY = 3


def words_of(texts: Iterable[str]) -> list[str]:
    """MeCab's words of each text, between blanks."""
    tagger = open_mecab(find_dictionary(DICTIONARY))
    return [" ".join(node.surface for node in tagger(normalize("NFKC", text))) for text in texts]


def train_vocabulary(texts: Iterable[str], size: int, letters: int) -> list[str]:
    """Pieces for texts of words between blanks: special ones first; the same ones each time.

    Only the commonest `letters` get pieces of their own, and words with others are left out. The trainer
    breaks ties by the numbers of pieces, and numbers those of letters inside a word in an order of chance; so
    it is handed those as special ones, in order.
    """
    counts = Counter(word for text in texts for word in text.split())
    known = common_letters(counts, letters)
    whole = {word: count for word, count in counts.items() if known.issuperset(word)}
    going_on = sorted({f"##{letter}" for word in whole for letter in word[1:]})
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=MIN_FREQUENCY,
        special_tokens=[*SPECIAL, *going_on],
        show_progress=False,
    )
    tokenizer.train_from_iterator((" ".join([word] * count) for word, count in whole.items()), trainer)
    numbers = tokenizer.get_vocab()
    return sorted(numbers, key=numbers.__getitem__)


def common_letters(words: Mapping[str, int], most: int) -> set[str]:
    """The commonest letters of words that occur so often; of equal ones, the lower in Unicode."""
    counts: Counter[str] = Counter()
    for word, times in words.items():
        for letter in word:
            counts[letter] += times
    return set(sorted(counts, key=lambda letter: (-counts[letter], letter))[:most])


def write_tokenizer(folder: Path, pieces: Iterable[str]) -> None:
    """The files that `BertJapaneseTokenizer`, and so `AutoTokenizer`, loads."""
    settings = {
        "tokenizer_class": "BertJapaneseTokenizer",
        "word_tokenizer_type": "mecab",
        "subword_tokenizer_type": "wordpiece",
        "mecab_kwargs": {"mecab_dic": DICTIONARY},
        "do_lower_case": False,
        "model_max_length": 512,
        **{f"{token[1:-1].lower()}_token": token for token in SPECIAL},
    }
    write_synced(folder / "vocab.txt", "".join(f"{piece}\n" for piece in pieces).encode())
    write_synced(folder / "tokenizer_config.json", (json.dumps(settings, indent=2) + "\n").encode())
