"""Texts that are hard to tokenise."""

HAND_MADE = [
    *("", " ", "   ", "a", " a", "a ", "two  spaces", "   many     spaces   ", "trailing   "),
    *(
        "tab\there",
        "two\t\ttabs",
        "tab \t and space",
        "\tfirst",
        "last\t",
        "line\nbreak",
        "end\n\n",
    ),
    *("a\r\nb", "no-break\u00a0space", "a \u00a0b", "a\u00a0\u00a0b", "a\u00a0 b", "50\u2009%"),
    *("10\u202f000\u202f€", "a\u202f\u202fb", "全角\u3000空白", "\u3000段落", "a\u00a0"),
    *("zero\u200bwidth", "a \u200b b", "soft\u00adhyphen", "\ufeffmark"),
    *("😀", "I 😀 you", "😀😀", "👩‍👩‍👧‍👦 family", "🇩🇪🇫🇷 flags", "👍🏽 tone 👍🏿", "❤️ and ❤", "1️⃣2️⃣"),
    *(
        "1,000.50 $5 £3 €2",
        "0123456789",
        "3rd 4K x2y",
        "½ ² ٣٤ ५७ 五",
        "1 2  3   4",
        "-1e-10 +49 30",
    ),
    *(
        "it's they're I'd we've I'm you'll",
        "IT'S THEY'RE",
        "'quoted' 's",
        "d'Artagnan l’été rock 'n'",
    ),
    *(
        "' 's ''s 'sup",
        "can 't",
        "cafe\u0301 e\u0301\u0302 \u0301x",
        "Å Å ﬁ ﬀ",
        "कि क्षि षि",
        "ไทยภาษา",
    ),
    *("مُحَمَّد", "שָׁלוֹם", "한국어 문장", "漢字かな交じり文。カタカナ", "Straße İstanbul ΣΊΣΥΦΟΣ πες"),
    *(
        "snake_case CamelCase a/b a-b http://x.y/?z=1&w=%20",
        "...!?!—“”„“‘’«»",
        "<mask> </s> [MASK]",
    ),
    *("x\x07y", "\x7f", "ĠĊ Ġthe Ċ", "_ __ ___ _a_", "中a文1字!", "𝐱𝔘𐍈", "\ufffd"),
    *("#version: 0.2", "supercalifragilistic" * 4),
]
LONG = ["a" * 1000, "ab" * 1000 + " c", "ไทย" * 300, "!" * 500, "9" * 500, "👩‍👧" * 100, "é" * 999]
