"""Rebuild the Japanese demo text from an unpacked ``debian-handbook`` package.

The script reads the Japanese HTML pages of "The Debian Administrator's
Handbook", keeps the translated prose and writes one text file per chapter.
Whole chapters are held out. A sentence that also occurs in a held-out chapter
is dropped from the training chapters, and the build fails if one is left.

    python build_text.py PACKAGE_FOLDER [--out text]

In the output a line is a heading or a paragraph, and an empty line ends a
section. The same package always gives the same bytes.
"""

from __future__ import annotations

import argparse
import re
import sys
import unicodedata
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from pathlib import Path

Block = list[str]

HTML = Path("usr/share/doc/debian-handbook/html/ja-JP")
HELDOUT = frozenset({"network-services", "workstation", "short-remedial-course"})
MIN_JAPANESE = 0.2
SHINGLE = 20

SKIPPED_TAGS = frozenset({"pre", "table", "dt", "img"})
SKIPPED_CLASSES = frozenset(
    {
        "calloutlist",
        "docnav",
        "example",
        "figure",
        "mediaobject",
        "table",
        "toc",
        "url",
    }
)
NESTED_CLASSES = frozenset({"section", "sidebar"})
TITLE_TAGS = frozenset({"h1", "h2", "h3", "h4", "h5", "p"})

KANA = r"\u3041-\u309f\u30a1-\u30ff"
CJK = r"\u3001-\u303f" + KANA + r"\u3400-\u4dbf\u4e00-\u9fff\uff01-\uff60"
CJK_GAP = re.compile(rf"(?<=[{CJK}])\s+(?=[{CJK}])")
END = r"\u3002\uff01\uff1f"
CLOSERS = r")\uff09\u300d\u300f"
NUMBERING = re.compile(r"^(?:第 \d+ 章\s*|付録 [A-Z]\.?\s*|(?:\d+|[A-Z])(?:\.\d+)*\. )")
QUOTED = re.compile(r"「[^」]*」")
SENTENCE = re.compile(rf"[^{END}\n]*[{END}]+[{CLOSERS}]*|[^{END}\n]+")


def tag_of(node: ET.Element) -> str:
    """Return the tag name without its namespace."""
    return node.tag.rpartition("}")[2]


def classes_of(node: ET.Element) -> set[str]:
    """Return the CSS classes of a node."""
    return set(node.get("class", "").split())


def is_skipped(node: ET.Element) -> bool:
    """Tell whether a node holds listings, tables, links or navigation."""
    return tag_of(node) in SKIPPED_TAGS or bool(classes_of(node) & SKIPPED_CLASSES)


def raw_text(node: ET.Element) -> str:
    """Join the text of a node, leaving out the parts that are not prose."""
    parts = ["^" if tag_of(node) == "sup" else "", node.text or ""]
    for child in node:
        if not is_skipped(child) and "title" not in classes_of(child):
            parts.append(raw_text(child))
        parts.append(child.tail or "")
    return "".join(parts)


def clean(text: str) -> str:
    """Undo the line breaks of the HTML and keep the spaces between words."""
    text = CJK_GAP.sub("", text.replace("\u200b", ""))
    return " ".join(re.sub(r"「\s+", "「", text).split())


def is_japanese(text: str) -> bool:
    """Tell a translated paragraph from an English one with Japanese quotes."""
    text = "".join(QUOTED.sub("", text).split())
    japanese = re.findall(rf"[{CJK}]", text)
    has_kana = re.search(rf"[{KANA}]", text) is not None
    return has_kana and len(japanese) >= MIN_JAPANESE * len(text)


def title_text(node: ET.Element) -> str:
    """Return a heading without its number."""
    return NUMBERING.sub("", clean(raw_text(node)))


def drop_labels(root: ET.Element) -> None:
    """Empty the English labels, such as NOTE, of boxes and links to boxes."""
    for node in root.iter():
        if tag_of(node) == "p" or "xref" in classes_of(node):
            label = node.find(".//{*}span[@class='emphasis']/{*}em")
            if label is not None and (label.text or "").isupper():
                label.text = ""


def collect(node: ET.Element) -> list[Block]:
    """Return the node's own block, then those of its boxes and subsections."""
    own: Block = []
    nested: list[Block] = []
    for child in node:
        classes = classes_of(child)
        if is_skipped(child):
            continue
        if classes & NESTED_CLASSES:
            nested += collect(child)
        elif "para" in classes:
            own.append(clean(raw_text(child)))
        elif "title" in classes and tag_of(child) in TITLE_TAGS:
            own.append(title_text(child))
        else:
            first, *rest = collect(child)
            own += first
            nested += rest
    return [own, *nested]


def read_page(path: Path) -> list[Block]:
    """Return the Japanese blocks of a page that hold more than a heading."""
    body = ET.parse(path).getroot().find("{*}body")
    if body is None:
        raise ValueError(f"{path.name} has no body")
    drop_labels(body)
    blocks = ([line for line in block if is_japanese(line)] for block in collect(body))
    return [block for block in blocks if any("。" in line for line in block)]


def list_chapters(html: Path) -> dict[str, list[str]]:
    """Return the pages of each chapter in the order of the book's contents."""
    chapters: dict[str, list[str]] = {}
    seen: set[str] = set()
    name = ""
    for span in ET.parse(html / "index.html").getroot().iter():
        kind = classes_of(span) & {"chapter", "preface", "appendix", "section"}
        link = span.find("{*}a")
        if tag_of(span) != "span" or not kind or link is None:
            continue
        page = link.get("href", "").partition("#")[0]
        if kind != {"section"}:
            name = page.removesuffix(".html")
            chapters[name] = []
        if page not in seen:
            seen.add(page)
            chapters[name].append(page)
    return chapters


def sentence_key(sentence: str) -> str:
    """Return the letters and digits of a sentence in a normal form."""
    return "".join(re.findall(r"\w", unicodedata.normalize("NFKC", sentence)))


def sentence_keys(text: str) -> set[str]:
    """Return the normal forms of all sentences of a text."""
    return {key for part in re.split(rf"[{END}\n]", text) if (key := sentence_key(part))}


def shared_sentences(train: Iterable[str], heldout: Iterable[str]) -> set[str]:
    """Return the sentences, in normal form, that occur in both parts."""
    return sentence_keys("\n".join(train)) & sentence_keys("\n".join(heldout))


def drop_sentences(blocks: list[Block], banned: set[str]) -> list[Block]:
    """Remove the banned sentences, and what is empty afterwards."""
    result = []
    for block in blocks:
        lines = []
        for line in block:
            kept = [s for s in SENTENCE.findall(line) if sentence_key(s) not in banned]
            lines.append("".join(kept).strip())
        if any("。" in line for line in lines):
            result.append([line for line in lines if line])
    return result


def shingles(texts: Iterable[str]) -> set[str]:
    """Return the character shingles of all lines, without white space."""
    lines = ["".join(line.split()) for text in texts for line in text.splitlines()]
    return {line[i : i + SHINGLE] for line in lines for i in range(len(line) - SHINGLE + 1)}


def render(blocks: list[Block]) -> str:
    """Write a line per heading or paragraph and an empty line per section."""
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def build(package: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Return the training and the held-out files by name."""
    html = package / HTML
    train: dict[str, list[Block]] = {}
    heldout: dict[str, str] = {}
    for number, (chapter, pages) in enumerate(list_chapters(html).items()):
        blocks = [block for page in pages for block in read_page(html / page)]
        name = f"{number:02d}-{chapter}.txt"
        if chapter in HELDOUT:
            heldout[name] = render(blocks)
        else:
            train[name] = blocks
    banned = sentence_keys("\n".join(heldout.values()))
    return {name: render(drop_sentences(b, banned)) for name, b in train.items()}, heldout


def write_part(folder: Path, files: dict[str, str]) -> None:
    """Replace the text files of a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.txt"):
        old.unlink()
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")


def describe(part: str, files: dict[str, str]) -> str:
    """Return the counts of a part in one line."""
    text = "".join(files.values())
    lines = [line for line in text.splitlines() if line]
    sections = sum(content.count("\n\n") + 1 for content in files.values())
    size = len(text.encode())
    return (
        f"{part}: {len(files)} files, {sections} sections, {len(lines)} lines, "
        f"{len(text)} characters, {size} bytes"
    )


def overlap(train: dict[str, str], heldout: dict[str, str]) -> str:
    """Return in one line how many held-out shingles occur in training."""
    held = shingles(heldout.values())
    common = len(held & shingles(train.values()))
    return (
        f"overlap: {common} of {len(held)} held-out {SHINGLE}-character shingles ({common / len(held):.2%})"
    )


def parse_args() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Rebuild the Japanese demo text.")
    parser.add_argument("package", type=Path, help="folder with the unpacked debian-handbook package")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(__file__).parent / "text",
        help="output folder (default: the folder 'text' next to this script)",
    )
    return parser.parse_args()


def main() -> int:
    """Build both parts, check them and print their counts."""
    args = parse_args()
    train, heldout = build(args.package)
    shared = shared_sentences(train.values(), heldout.values())
    if shared:
        print(
            f"{len(shared)} sentences are in both parts, e.g. {min(shared)}",
            file=sys.stderr,
        )
        return 1
    write_part(args.out / "train", train)
    write_part(args.out / "heldout", heldout)
    print(describe("train", train))
    print(describe("heldout", heldout))
    print(overlap(train, heldout))
    return 0


if __name__ == "__main__":
    sys.exit(main())
