"""Rules of the language: comments without fragments, pages of short sentences, protos of 100 columns."""

import re

WORDS_A_SENTENCE = 20  # On the average of a page.
LONG_SENTENCE, LONG_PERCENT = 35, 5
PROTO_COLUMNS = 100

# A sentence of a comment that begins so is a fragment or says later what it is about.
FRAGMENT = re.compile(r"(Of|Who|What|Whose|Whoever|Whether|Which)\b")
# Records of measurements and machine output, as they were written.
RECORDS = ("docs/figures/", "docs/notes/", "CHANGELOG.md")


def comments(text, mark):
    """(line, text) of each comment: of neighbouring lines of it, joined."""
    block, first = [], 0
    for number, line in enumerate([*text.split("\n"), ""], 1):
        found = re.match(rf"\s*{mark}+ ?(.*)", line) or re.match(rf".*?[;{{}},]\s*{mark}+ ?(.*)", line)
        if found:
            first = first if block else number
            block.append((number, found[1]))
        elif block:
            yield first, block
            block = []


def sentences(block):
    """(line, sentence) of the lines of a comment."""
    text, starts = "", []
    for number, line in block:
        starts.append((len(text), number))
        text += line + " "
    at = 0
    for sentence in re.split(r"(?<=[.:;!?])\s+", text):
        begin = text.index(sentence, at)
        at = begin + len(sentence)
        yield max(number for start, number in starts if start <= begin), sentence


def check_comments(path, text):
    for _, block in comments(text, "//"):
        for number, sentence in sentences(block):
            if FRAGMENT.match(sentence) and len(re.findall(r"[A-Za-z']+", sentence)) > 1:
                yield f"{path}:{number}: a comment begins with a fragment: {sentence[:60].strip()}"


def check_columns(path, text):
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > PROTO_COLUMNS:
            yield f"{path}:{number}: {len(line)} columns, more than {PROTO_COLUMNS}"


def page_sentences(text):
    """(line, words) of each sentence of a page: no code, tables, headings or what is indented as code."""
    text = re.sub(r"```.*?```", lambda code: "\n" * code[0].count("\n"), text, flags=re.S)
    at = 0
    for paragraph in re.split(r"(\n\s*\n|\n\s*[-*] |\n\s*\d+\. )", text):
        line = text.count("\n", 0, at) + 1
        at += len(paragraph)
        if paragraph.lstrip("\n").startswith(("|", "#", "    ")) or paragraph.lstrip().startswith(("|", "#")):
            continue
        for sentence in re.split(r"(?<=[.!?])\s+", " ".join(paragraph.split())):
            if len(sentence.split()) > 2:
                yield line, sentence.split()


def check_page(path, text):
    found = list(page_sentences(text))
    if not found or path.startswith(RECORDS):
        return
    words = sum(len(sentence) for _, sentence in found)
    if words > WORDS_A_SENTENCE * len(found):
        yield f"{path}:1: {words / len(found):.1f} words a sentence, more than {WORDS_A_SENTENCE}"
    long = [(line, sentence) for line, sentence in found if len(sentence) > LONG_SENTENCE]
    if len(long) * 100 > LONG_PERCENT * len(found):
        for line, sentence in long:
            yield (
                f"{path}:{line}: a sentence of {len(sentence)} words, and more than {LONG_PERCENT} % of the page's "
                f"have more than {LONG_SENTENCE}: {' '.join(sentence[:8])} ..."
            )


def check(path, text):
    if path.endswith((".h", ".cc", ".cu", ".cuh", ".proto")):
        yield from check_comments(path, text)
    if path.endswith(".proto") and path.startswith("proto/annulus/"):
        yield from check_columns(path, text)
    if path.endswith(".md"):
        yield from check_page(path, text)
