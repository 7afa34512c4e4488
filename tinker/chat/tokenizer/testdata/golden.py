"""Trains one tiny tokenizer for each kind of pipeline and writes it here with what the reference makes of texts.

Run with a Python that has tokenizers 0.23.3 (test/tokenizers/setup.sh makes one):

    python golden.py
"""

import json
import pathlib
import random
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[3] / "test" / "tokenizers"))
import reference  # noqa: E402

HEAD = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
DEEPSEEK = [
    r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
]


def byte_level(patterns, normalizer=None, ignore_merges=False):
    tok = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer:
        tok.normalizer = normalizer
    splits = [pre_tokenizers.Split(Regex(p), "isolated") for p in patterns]
    tok.pre_tokenizer = pre_tokenizers.Sequence(splits + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(reference.SENTENCES * 2, trainers.BpeTrainer(vocab_size=700, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    tok.post_processor = processors.ByteLevel(trim_offsets=False)
    return tok


def with_fallback():
    tok = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tok.normalizer = normalizers.Replace(" ", "▁")
    tok.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    tok.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    special = ["<pad>", "<eos>", "<bos>", "<unk>"] + [f"<0x{b:02X}>" for b in range(256)]
    tok.train_from_iterator(reference.SENTENCES[:8] * 2, trainers.BpeTrainer(vocab_size=900, special_tokens=special, show_progress=False))
    spec = json.loads(tok.to_str())
    spec["added_tokens"] = [a for a in spec["added_tokens"] if not a["content"].startswith("<0x")]
    spec["pre_tokenizer"] = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
    tok = Tokenizer.from_str(json.dumps(spec))
    tok.post_processor = processors.TemplateProcessing(single="<bos> $A <eos>", special_tokens=[("<bos>", 2), ("<eos>", 1)])
    return tok


def main():
    tokenizers = {
        "onedigit": byte_level([HEAD + r"\p{N}" + TAIL], normalizers.NFC()),
        "threedigits": byte_level([HEAD + r"\p{N}{1,3}" + TAIL], ignore_merges=True),
        "deepseek": byte_level(DEEPSEEK, normalizers.Sequence([])),
        "fallback": with_fallback(),
    }
    # Every mark, and a sample of the texts of the large suite.
    texts = reference.strings()
    texts = texts[:130] + random.Random(3).sample([t for t in texts[130:] if len(t) < 80], 120)
    # White space that a mark strips is a mark itself, and marks beside letters that are none by their category.
    texts += ["a</think>\n\n b", "</think> \n\n\n", "<mask>ⅷ", "<mask>\u200d", "<mask>‿", "\u0345<mask>", "<mask>①", "<mask>½"]
    for name, tok in tokenizers.items():
        tok.add_special_tokens(["<|im_start|>", "<|im_end|>", AddedToken("<start_of_turn>", normalized=False, special=True)])
        tok.add_tokens([AddedToken("<think>", normalized=True), AddedToken("</think>", lstrip=True, rstrip=True), AddedToken("<mask>", single_word=True), "\n\n", "\n\n\n"])
        (HERE / f"{name}.json").write_text(tok.to_str() + "\n")
        rng, size, cases = random.Random(5), tok.get_vocab_size(), []
        for text in texts:
            ids = tok.encode(text, add_special_tokens=False).ids
            broken = [i if rng.random() < 0.7 else rng.randrange(size) for i in ids[:40] if rng.random() < 0.9]
            cases.append({
                "text": text, "ids": ids, "broken": broken,
                "decoded": tok.decode(ids, skip_special_tokens=False), "broken_text": tok.decode(broken, skip_special_tokens=False),
            })
        (HERE / f"{name}.golden.json").write_text("[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]\n")


main()
