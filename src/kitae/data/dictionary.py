"""MeCab dictionaries: what a name stands for, where it lies, and what tells two of them apart.

A vocabulary belongs to the dictionary that its words were cut with, so one never stands in for another.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kitae.data.hashing import HashCache
from kitae.errors import DataError

PACKAGES = {
    "unidic_lite": ("unidic-lite", "pip install 'kitae[ja]'"),
    "ipadic": ("ipadic", "pip install 'kitae[ja]'"),
    "unidic": ("unidic", "pip install unidic && python -m unidic download"),
}
"""Dictionaries that arrive in packages, as transformers names them: the package, and how to get it."""

FILES = ("dicrc", "sys.dic", "unk.dic", "matrix.bin", "char.bin")
"""What a compiled dictionary is made of."""


@dataclass(frozen=True)
class Dictionary:
    """A MeCab dictionary that is here."""

    name: str
    """`unidic_lite`, `ipadic`, `unidic`, or a folder."""
    option: str
    """What MeCab is started with."""
    identity: str
    """Package and version or hashes of the folder's files, and further options of MeCab."""


@dataclass(frozen=True)
class Named:
    """What a tokenizer's files say about its dictionary."""

    dictionary: str | None
    """A name, a folder, or None where they say nothing."""
    option: str = ""
    """Further options of MeCab."""

    @classmethod
    def by(cls, mecab_kwargs: Mapping[str, Any] | None) -> Named:
        """Read `mecab_kwargs` of tokenizer_config.json."""
        kwargs = mecab_kwargs or {}
        option = str(kwargs.get("mecab_option") or "")
        if kwargs.get("mecab_dic") is not None:
            return cls(str(kwargs["mecab_dic"]), option)
        return cls(_folder_of(option), option)

    @property
    def is_folder(self) -> bool:
        """Whether it is one that lies somewhere on a machine, as its own options say."""
        return self.dictionary is not None and self.dictionary not in PACKAGES


def choose_dictionary(named: Named, wanted: str | None, where: Path) -> Dictionary:
    """The dictionary by the files at `where` and by the recipe's `data.tokenizer.dictionary`.

    Raises `DataError` where they contradict each other or say nothing, and for one that is not here.
    """
    if wanted is None and named.dictionary is None:
        raise DataError(
            f"{where}: the tokenizer's files name no MeCab dictionary (older versions of transformers then "
            "took ipadic, newer ones take unidic_lite); set data.tokenizer.dictionary to the one that its "
            "vocabulary was made with"
        )
    chosen = wanted or named.dictionary
    assert chosen is not None
    # Where a folder lies is a matter of the machine, so the recipe may say it anew.
    both_folders = named.is_folder and chosen not in PACKAGES
    if named.dictionary is not None and chosen != named.dictionary and not both_folders:
        raise DataError(
            f"{where}: its vocabulary was made with {named.dictionary}, and data.tokenizer.dictionary is "
            f"{chosen}, which cuts words elsewhere; take dictionary out, or name another tokenizer"
        )
    return find_dictionary(chosen, "" if named.is_folder else named.option)


def find_dictionary(name: str, option: str = "") -> Dictionary:
    """The dictionary of a package or in a folder, with further options of MeCab; raises `DataError`."""
    return _packaged(name, option) if name in PACKAGES else _in_folder(Path(name), option)


def mecab_kwargs(dictionary: Dictionary) -> dict[str, Any]:
    """What tokenizer_config.json has to say so that transformers takes the same dictionary."""
    if dictionary.name in PACKAGES:
        return {"mecab_dic": dictionary.name}
    return {"mecab_dic": None, "mecab_option": dictionary.option}


def _packaged(name: str, option: str) -> Dictionary:
    package, remedy = PACKAGES[name]
    way_out = f"{remedy}. No other dictionary is taken in its place: it would cut words elsewhere"
    try:
        folder = Path(importlib.import_module(name).DICDIR)
        version = importlib.metadata.version(package)
    except ImportError as error:
        raise DataError(
            f"the MeCab dictionary {name} (package {package}) is not installed; {way_out}"
        ) from error
    if not (folder / "sys.dic").is_file():
        raise DataError(f"{folder}: the package {package} is installed without its dictionary; {way_out}")
    return Dictionary(name, _options(folder, option), f"{package} {version} {option}".strip())


def _in_folder(folder: Path, option: str) -> Dictionary:
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing:
        what = f"no {', '.join(missing)} in it" if folder.is_dir() else "no such folder"
        raise DataError(
            f"{folder}: not a compiled MeCab dictionary ({what}); give its folder in "
            f"data.tokenizer.dictionary, or one of {', '.join(PACKAGES)}"
        )
    hashes = HashCache(None)
    content = json.dumps([hashes.sha256(folder / name) for name in FILES])
    return Dictionary(str(folder), _options(folder.absolute(), option), f"{content} {option}".strip())


def _options(folder: Path, further: str) -> str:
    """Options in the shell's quoting, which is what fugashi reads: a path may hold blanks."""
    settings = folder / "mecabrc"
    settings = settings if settings.is_file() else Path("/dev/null")
    return f"-d {shlex.quote(str(folder))} -r {shlex.quote(str(settings))} {further}".strip()


def _folder_of(option: str) -> str | None:
    """The folder behind -d or --dicdir in options of MeCab."""
    words = shlex.split(option)
    for place, word in enumerate(words):
        if word in ("-d", "--dicdir") and place + 1 < len(words):
            return words[place + 1]
        for start in ("--dicdir=", "-d"):
            if word.startswith(start) and word != start:
                return word.removeprefix(start)
    return None
