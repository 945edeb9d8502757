r"""What is done to a document's text before it is tokenised.

1. Newlines (\n, \r) at both ends are cut off: a text and the same text with newlines around it give the
   same ids. Other white space stays, because an ideographic space or an indent at the beginning is part of
   the text.
2. The Unicode normalisation that the recipe names. NFKC is not harmless (U+FE30 becomes two full stops,
   U+3000 a blank), so changed documents are counted. Nothing here strips marks: voiced kana stay voiced.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

DOCUMENT_ENDS = "newlines at both ends of a document are cut off"
"""What the data card says of point 1."""


def _nfc(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _nfkc(text: str) -> str:
    return unicodedata.normalize("NFKC", text)


def _none(text: str) -> str:
    return text


NORMALISATIONS: dict[str, Callable[[str], str]] = {"none": _none, "nfc": _nfc, "nfkc": _nfkc}


def clean(text: str, normalisation: str) -> tuple[str, bool]:
    """The text without newlines at its ends, normalised; and whether the normalisation changed it."""
    stripped = text.strip("\r\n")
    normalised = NORMALISATIONS[normalisation](stripped)
    return normalised, normalised != stripped


def unicode_version(normalisation: str) -> str | None:
    """Version of the Unicode tables that the result depends on; None when it depends on none."""
    return None if normalisation == "none" else unicodedata.unidata_version
