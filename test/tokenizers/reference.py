"""What the real tokenizers make of texts, as JSON on standard output.

    python reference.py texts                   10,000 texts
    python reference.py strings MODEL_DIR       the texts with their ids, and what ids decode to, one to a line
    python reference.py speed MODEL_DIR FILE    seconds of CPU to encode a list of texts, one thread, nothing remembered
"""

import json
import os
import random
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

from tokenizers import Tokenizer  # noqa: E402

SENTENCES = """
The quick brown fox jumps over the lazy dog. It's 7 o'clock; they've been WE'LL DON'T 'Tis I'M he'd she's.
Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich. ÄÖÜß „Anführung“ – Gedankenstrich…
Portez ce vieux whisky au juge blond qui fume : l’été où naquit Noël, cœur, garçon, aïeul.
El pingüino Wenceslao hizo kilómetros bajo exhaustiva lluvia y frío; ¿añoraba a su querido cachorro?
Příliš žluťoučký kůň úpěl ďábelské ódy. Zażółć gęślą jaźń. Árvíztűrő tükörfúrógép. Şişli'de ıslak İğne.
Съешь же ещё этих мягких французских булок, да выпей чаю. Чуєш їх, доцю, га? Ґанок, ґедзь.
Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. Ταχίστη αλώπηξ. ΌΣΟΙ ΕΊΝΑΙ ΣΟΦΟΊ.
いろはにほへと ちりぬるを。私はガラスを食べられます。それは私を傷つけません。ｶﾀｶﾅ テスト・ー「括弧」
我能吞下玻璃而不伤身体。視野無限廣，窗外有藍天。微風迎客，軟語伴茶。𠀀𠮷𡃁
키스의 고유조건은 입술끼리 만나야 하고 특별한 기술은 필요치 않다. 한글 각
איך בלש תפס גמל רוחץ אם עצת כזאת קבל? שָׁלוֹם עֲלֵיכֶם
صِف خَلقَ خَودِ كَمِثلِ الشَمسِ إِذ بَزَغَت. ۱۲۳۴۵۶۷۸۹۰ گچپژ
ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश। १२३४ क्षत्रिय
เป็นมนุษย์สุดประเสริฐเลิศคุณค่า กว่าบรรดาฝูงสัตว์เดรัจฉาน ๑๒๓๔
நான் கண்ணாடி சாப்பிடுவேன். తెలుగు కన్నడ ಕನ್ನಡ മലയാളം සිංහල বাংলা ગુજરાતી ਪੰਜਾਬੀ
ကျွန်တော် ဖန်စား ខ្ញុំអាចញុំកញ្ចក់ ຂ້ອຍກິນແກ້ວ ᠮᠣᠩᠭᠣᠯ ქართული Հայերեն አማርኛ ᏣᎳᎩ
👍🏽 👩‍👩‍👧‍👦 🇩🇪🇫🇷 🏳️‍🌈 ☺️ 🧑🏿‍🚀 ✨ ☎ ™ © 🤷‍♀️ 1️⃣ ❤️‍🔥 🫠 🪿
∀x∈ℝ: ⌈x⌉ = −⌊−x⌋, α ∧ ¬β, ∑_{i=1}^{n} i² ≤ √π · 10⁻³ ½ ⅓ Ⅻ ⅷ ① ⑳ ㊿ ₀₁ ²³
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) } // ok
def f(x: int, *args, **kw) -> dict[str, Any]: return {"a": [i for i in range(x) if i % 2 == 0]}  # py
const x = async () => { await fetch(`/api/${id}?q=${encodeURIComponent(q)}`); } /* js */ a?.b ?? c
SELECT u.id, COUNT(*) FROM users AS u WHERE u.name LIKE '%x%' GROUP BY 1 HAVING COUNT(*) > 10;
#include <stdio.h>\tint main(void) { printf("%d\\n", 0xFF); return 0; } #define MAX(a,b) ((a)>(b)?(a):(b))
<html><body class="a b">&nbsp;<p>Text</p><br/></body></html> <table><tr><td>1</td></tr></table> </code></pre>
{"a": [1, 2.5e-10, null, true], "b": {"c": "\\u00e9\\n"}} 1234567890 12 345 6789 3.14159265358979 1,000,000
https://example.com:8080/path/to?x=1&y=%20#frag user@example.org 192.168.0.1 2001:db8::1 C:\\Windows\\x.exe
""".strip().split("\n")

MARKS = [
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<tool_call>", "</tool_call>", "<think>", "</think>", "<|begin_of_text|>", "<|eot_id|>",
    "<|start_header_id|>", "<｜User｜>", "<｜Assistant｜>", "<｜tool▁calls▁begin｜>", "<｜begin▁of▁sentence｜>", "<|EOT|>", "<start_of_turn>", "<end_of_turn>",
    "<bos>", "<eos>", "<unused7>", "<unused77>", "<unused", "[multimodal]", "<mask>", "<0x0A>", "<0xFF>", "<|im_", "im_end|>", "<|reserved_special_token_9|>",
    "<|reserved_special_token_99|>", "▁", "▁▁▁", "Ġ", "ĠĠ", "Ċ", "</s>", "<pad>", "<unk>", "<table>", "</h1>", "<code>", "<strong>",
]

SPACES = [" ", "  ", "   ", "\t", "\n", "\r\n", "\n\n", "\n\n\n", " \n", "\n ", "\u00a0", "\u3000", "\u2003", "\u200b", "\u2028", "\u0085", "\x0b", "\x0c", "\r", " " * 17, "\n" * 33, "\t" * 9]

COMBINING = ["e\u0301", "o\u0308\u0304", "\u1100\u1161\u11a8", "\uac00\u11a8", "\u0915\u094d\u0937", "\u0e01\u0e33", "q\u0307\u0323", "\u0344", "\u212b", "\u2126", "\uf900", "\u0958", "a\u0315\u0300\u05ae\u0327", "\u1e9b\u0323", "\u0300", "\u0fb2\u0f71\u0f80", "\u1ea5", "\u3099", "か\u3099", "\u05d1\u05bc\u05b8", "\u0653\u0627", "\U0001d15e", "\u2adc"]


def random_char(rng):
    kind = rng.random()
    if kind < 0.3:
        return chr(rng.randrange(0x20, 0x7F))
    if kind < 0.4:
        return chr(rng.randrange(0, 0x20))
    if kind < 0.6:
        return chr(rng.randrange(0x80, 0x3000))
    if kind < 0.8:
        return chr(rng.choice([rng.randrange(0x3000, 0xD800), rng.randrange(0xE000, 0x10000)]))
    if kind < 0.9:
        return chr(rng.randrange(0x1F000, 0x1FB00))
    return chr(rng.randrange(0x10000, 0x110000))


def strings():
    """10,000 texts, the same every time: sentences and their parts, code, white space, marks, combining characters, noise."""
    rng = random.Random(7)
    out = ["", " ", "  ", "\n", "a", "é", "\U0001f600", "\x00", "\ufeff", "'s", "'S", "'ſ", "'lL 've 'RE", "x'd", "a'b", "1234567", "a1b22c333d4444"]
    out += SENTENCES + MARKS + SPACES + COMBINING
    out += [m + t + m for m in MARKS[:8] for t in ("x", " ", "\n")]
    out += ["".join(rng.choice(SENTENCES) for _ in range(n)) for n in (5, 20)]
    out += ["a" * 1000, " " * 1000, "\n" * 500, "ab" * 700, "1" * 999, "!" * 500, "é" * 300, "漢" * 300, "\U0001f600" * 100, "aA" * 300, "=" * 257, "ͅ" * 40]
    while len(out) < 10000:
        kind = rng.randrange(8)
        if kind == 0:
            s = rng.choice(SENTENCES)
            a, b = sorted(rng.randrange(len(s) + 1) for _ in range(2))
            out.append(s[a:b])
        elif kind == 1:
            words = [w for _ in range(3) for w in rng.choice(SENTENCES).split()]
            out.append("".join(rng.choice(words) + rng.choice(SPACES + [" "] * 40) for _ in range(rng.randrange(1, 20))))
        elif kind == 2:
            out.append("".join(random_char(rng) for _ in range(rng.randrange(1, 30))))
        elif kind == 3:
            parts = MARKS + SPACES + COMBINING + ["a", "b c", "1", ".", "'s", "x1"]
            out.append("".join(rng.choice(parts) for _ in range(rng.randrange(1, 12))))
        elif kind == 4:
            base = rng.choice(SENTENCES)
            out.append("".join(c + (rng.choice(COMBINING)[-1] if rng.random() < 0.2 else "") for c in base[:40]))
        elif kind == 5:
            out.append("".join(rng.choice([str(rng.randrange(10 ** rng.randrange(1, 9))), rng.choice(" .,:-_/'\n"), rng.choice("abXYäß")]) for _ in range(rng.randrange(1, 25))))
        elif kind == 6:
            out.append("\n".join(" " * rng.randrange(0, 13) + rng.choice(SENTENCES)[: rng.randrange(60)] for _ in range(rng.randrange(1, 8))))
        else:
            out.append("".join(chr(rng.randrange(0x20, 0x7F)) for _ in range(rng.randrange(1, 40))))
    return out


def main():
    command = sys.argv[1]
    if command == "texts":
        json.dump(strings(), sys.stdout)
        return
    model = sys.argv[2]
    tok = Tokenizer.from_file(os.path.join(model, "tokenizer.json"))
    if command == "strings":
        rng, size = random.Random(11), tok.get_vocab_size()
        for text in strings():
            ids = tok.encode(text, add_special_tokens=False).ids
            # Ids that no text gives: some left out, some changed.
            broken = [i if rng.random() < 0.7 else rng.randrange(size) for i in ids if rng.random() < 0.9]
            print(json.dumps({
                "text": text, "ids": ids, "decoded": tok.decode(ids, skip_special_tokens=False),
                "broken": broken, "broken_text": tok.decode(broken, skip_special_tokens=False),
            }))
    elif command == "speed":
        with open(sys.argv[3], encoding="utf-8") as file:
            texts = json.load(file)
        begin = time.process_time()
        n = 0
        for at in range(0, len(texts), 100):  # the fastest way that it has
            n += sum(len(e.ids) for e in tok.encode_batch_fast(texts[at:at + 100], add_special_tokens=False))
        print(json.dumps({"seconds": time.process_time() - begin, "ids": n}))


if __name__ == "__main__":
    main()
