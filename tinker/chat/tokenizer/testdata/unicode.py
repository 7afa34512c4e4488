"""Writes unicode.golden.json: what the reference's regular expressions and NFC know of every character.

Both are older or newer than the tables of any one version of Unicode, so they are asked, character by character.
Run with a Python that has tokenizers 0.23.3 (test/tokenizers/setup.sh makes one):

    python unicode.py > unicode.golden.json
"""

import json
import unicodedata

from tokenizers import Regex, normalizers, pre_tokenizers

CHARS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
CLASSES = [r"\p{L}", r"\p{N}", r"\p{M}", r"[\p{P}\p{S}]", r"\s"]


def members(pattern):
    """The characters that match, found in batches with a character between them that is in none of the classes."""
    split = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
    found = set()
    for begin in range(0, len(CHARS), 4096):
        batch = CHARS[begin:begin + 4096]
        # U+0000 stands between them. The match itself gives the character.
        text = "\0".join(map(chr, batch))
        for piece, _ in split.pre_tokenize_str(text):
            found.update(map(ord, piece))
    assert 0 not in found
    return found


def classes():
    """The characters at which the classes change, each with the classes from there on, as bits."""
    of = [0] * 0x110000
    for bit, pattern in enumerate(CLASSES):
        for c in members(pattern):
            of[c] |= 1 << bit
    return [[c, bits] for c, bits in enumerate(of) if bits != (of[c - 1] if c else 0)]


def texts():
    """Each character that Python decomposes, alone and decomposed, and each mark before a lower and behind a higher class."""
    for c in map(chr, CHARS):
        if unicodedata.decomposition(c) and not unicodedata.decomposition(c).startswith("<"):
            yield c
            yield unicodedata.normalize("NFD", c)
        if unicodedata.combining(c):
            yield "a" + c + "\u0334"  # class 1
            yield "a\u0345" + c  # class 240
    for c in range(0xAC00, 0xD7A4, 97):  # Hangul syllables are computed
        yield chr(c)
        yield unicodedata.normalize("NFD", chr(c))


def main():
    form = normalizers.NFC()
    golden = {"classes": classes(), "nfc": {text: form.normalize_str(text) for text in texts()}}
    print(json.dumps(golden, ensure_ascii=False, separators=(",", ":")))


main()
