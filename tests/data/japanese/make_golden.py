"""Make the vocabularies and golden ids of this folder with transformers' own class.

    python tests/data/japanese/make_golden.py

Words of the demo text and of the sentences below, which were written for this purpose, are cut by MeCab, and
a WordPiece vocabulary is trained on them, one for each dictionary; then `BertJapaneseTokenizer` cuts the
sentences. A vocabulary that is there stays: training one again gives another, since ties fall by chance.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import tempfile
import unicodedata
from pathlib import Path

import fugashi
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import BertJapaneseTokenizer

HERE = Path(__file__).parent
DEMO_TEXT = HERE.parents[2] / "recipes/demo/text/train"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCABULARY_SIZE = 3000
DICTIONARIES = {"unidic_lite": "unidic-lite", "ipadic": "ipadic"}
KINDS = {
    "wordpiece": {"subword_tokenizer_type": "wordpiece"},
    "wordpiece-lower": {"subword_tokenizer_type": "wordpiece", "do_lower_case": True},
    "character": {"subword_tokenizer_type": "character"},
}

SENTENCES = [
    "今日は朝から雨が降っていたので、傘を持って出かけました。",
    "日本語の文章を単語に分けるのは、思ったより難しい。",
    "この映画は最後まで目が離せないほど面白かった。",
    "料理は冷めていて、店員の態度もひどかった。",
    "がぎぐげござじずぜぞだぢづでどばびぶべぼぱぴぷぺぽ",
    "ガギグゲゴザジズゼゾダヂヅデドバビブベボパピプペポ",
    "かきくけこさしすせそたちつてとはひふへほ",
    "ｶﾞｷﾞｸﾞｹﾞｺﾞとﾊﾟﾋﾟﾌﾟﾍﾟﾎﾟは半角で書かれている。",
    "か\u3099き\u3099は\u309aと書いても、がぎぱと同じ文字になる。",
    "Ｄｅｂｉａｎ　１１をインストールする手順を説明します。",
    "㍻の時代に作られた規則は、㍿の社内でまだ使われている。",
    "縦書きの\ufe30記号と①②③、それに㎏と℃を含む文。",
    "\u3000行の頭に全角の空白がある段落です。",
    "\n前後に改行がある文です。\n",
    "一行目です。\n二行目です。\r\n三行目です。",
    "タブ\tと  二つの 空白で  区切られた 言葉。",
    "Linuxのカーネルは、Linus Torvaldsが1991年に公開した。",
    "https://example.org/index.html?lang=ja を開いてください。",
    "apt-get install python3-numpy と入力し、Enterキーを押します。",
    "/etc/network/interfaces というファイルを編集した。",
    "バージョン 2.6.32 から 5.10 までの変更点は 1,234 件あった。",
    "価格は税込み3,980円（送料別）で、20%引きになる！",
    "彼は「行かない」と言ったが、本当は行きたかったのだろう。",
    "えっ、まさか…そんなはずがないでしょう？！",
    "ありがとうございましたーーーーーーーーーーーーーーーーー。",
    "すもももももももものうち",
    "うらにわにはにわにわとりがいる。",
    "東京都に住んでいる祖父は、京都の大学を出た。",
    "外国人参政権について話し合う会議が開かれた。",
    "𠮷野家で髙橋さんと待ち合わせた。",
    "絵文字😀と👨\u200d👩\u200d👧を含む短い文🎉",
    "鬱蒼とした森の奥で、鸚鵡が囀っている。",
    "ＡＢＣａｂｃ１２３！？＠＃",
    "Größe と café と naïve はアクセント記号を持つ。",
    "Привет, мир と書かれた紙が落ちていた。",
    "한국어와 中文も少し混ざった文。",
    "[MASK]は日本の首都です。[SEP]そして[UNK]は謎です。",
    "[CLS]という印は、文の先頭に付く。",
    "x" * 101 + "という長い単語は辞書にない。",
    "ネットワークインターフェースカードのデバイスドライバーを再読み込みする。",
    "パッケージ管理システムの依存関係を解決できませんでした。",
    "ユーザーがパスワードを忘れたときは、管理者に連絡してください。",
    "お客様各位、平素は格別のご高配を賜り厚く御礼申し上げます。",
    "行った行ったと言うけれど、一体どこへ行ったの。",
    "二〇二六年十一月三十日（月曜日）午後六時三十分",
    "この店のラーメンは、もう二度と食べたくない。",
    "音が良く、電池も長持ちするので大満足です。",
    "説明書が分かりにくくて、設定に三時間もかかった。",
    "子どもたちが公園で楽しそうに遊んでいる。",
    "。、・「」『』（）【】",
]


def main() -> None:
    """Write a vocabulary for each dictionary, and golden.json."""
    assert len(SENTENCES) == 50
    packages = ("transformers", "fugashi", *DICTIONARIES.values())
    golden: dict[str, object] = {
        "versions": {name: importlib.metadata.version(name) for name in packages},
        "unicode": unicodedata.unidata_version,
        "sentences": SENTENCES,
    }
    for dictionary in DICTIONARIES:
        vocabulary = HERE / f"vocab-{dictionary}.txt"
        if not vocabulary.is_file():
            vocabulary.write_text("\n".join(train(dictionary)) + "\n", encoding="utf-8")
        golden[dictionary] = {kind: ids(vocabulary, dictionary, options) for kind, options in KINDS.items()}
    text = json.dumps(golden, ensure_ascii=False, indent=1).replace("\n    ", " ")
    (HERE / "golden.json").write_text(text + "\n", encoding="utf-8")


def train(dictionary: str) -> list[str]:
    """The tokens of a vocabulary, in the order of their ids."""
    folder = importlib.import_module(dictionary).DICDIR
    mecab = fugashi.GenericTagger(f'-d "{folder}" -r "{folder}/mecabrc"')
    lines = [
        line for path in sorted(DEMO_TEXT.glob("*.txt")) for line in path.read_text("utf-8").splitlines()
    ]
    texts = [unicodedata.normalize("NFKC", text) for text in (*lines, *SENTENCES)]
    words = [" ".join(node.surface for node in mecab(text)) for text in texts]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.WordPieceTrainer(
        vocab_size=VOCABULARY_SIZE, special_tokens=SPECIAL, limit_alphabet=1200, show_progress=False
    )
    tokenizer.train_from_iterator(words, trainer)
    trained = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().__getitem__)
    kana = [chr(code) for code in (*range(0x3041, 0x3097), *range(0x30A1, 0x30FB))]
    return list(dict.fromkeys([*SPECIAL, *kana, *(f"##{char}" for char in kana), *trained]))


def ids(vocabulary: Path, dictionary: str, options: dict[str, object]) -> list[list[int]]:
    """What transformers makes of each sentence, loaded from a folder as a user loads it."""
    made = BertJapaneseTokenizer(
        str(vocabulary), word_tokenizer_type="mecab", mecab_kwargs={"mecab_dic": dictionary}, **options
    )
    with tempfile.TemporaryDirectory() as folder:
        made.save_pretrained(folder)
        loaded = BertJapaneseTokenizer.from_pretrained(folder)
        return [loaded(sentence, add_special_tokens=False)["input_ids"] for sentence in SENTENCES]


if __name__ == "__main__":
    main()
