"""Patterns of RE2 by Python's: what they match, and which are refused."""

import pickle
import unicodedata

import pytest

from tangrad_text.patterns import Regex, RegexTokenizer, compiled


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        (r"\pL+", "año 12 Ⅷ", ["año"]),
        (r"\p{Lu}", "aBÇd", ["B", "Ç"]),
        (r"\PL+", "a12b", ["12"]),
        (r"[\pN_]+", "a1½_b", ["1½_"]),
        (r"[^\s\pL\pN]+", "a, b!\u00a0c", [",", "!\u00a0"]),
        (r"\p{^L}", "a1", ["1"]),
        (r"\d+", "12 ٣", ["12"]),
        (r"\w+", "año", ["a", "o"]),
        (r"\s", "a\tb\vc\u2003", ["\t"]),
        (r"\S+", "a\vb c", ["a\vb", "c"]),
        (r"[]a]", "]b", ["]"]),
        (r"[[a]", "[b", ["["]),
        (r"(?i)ab\z", "xAB", ["AB"]),
        (r"\.\[", "a.[", [".["]),
    ],
)
def test_a_pattern_matches_what_re2_does(pattern, text, matches):
    assert compiled(pattern).findall(text) == matches


def test_classes_are_those_of_unicode():
    letters, others = compiled(r"\pL"), compiled(r"\PL")
    for code in range(0, 0x110000, 37):
        is_letter = unicodedata.category(chr(code)).startswith("L")
        assert bool(letters.match(chr(code))) is is_letter
        assert bool(others.match(chr(code))) is not is_letter


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        (r"a(?=b)", "look neither around nor back"),
        (r"(a)\1", "look neither around nor back"),
        (r"\p{Greek}", "those of Unicode's categories"),
        (r"a(", "no regular expression"),
        (r"*", "no regular expression"),
    ],
)
def test_what_is_no_pattern_of_re2_is_refused(pattern, said):
    with pytest.raises(RuntimeError, match=said):
        Regex(pattern)


def test_groups_stand_in_replacements():
    assert Regex(r"(\w)(\d)").Sub("a1 b2", r"\2\\\1") == r"1\a 2\b"
    assert Regex("a").Sub("banana", r"\g") == r"b\gn\gn\g"
    assert pickle.loads(pickle.dumps(Regex("a+"))).Sub("baa", "c") == "bc"


def test_a_line_is_replaced_in_and_split():
    tokenizer = RegexTokenizer([r"[,.]", r"(\pL)'(\pL)"], [" , ", r"\1 '\2"], True)
    assert tokenizer.forward("Don't, Ärger.") == ["don", "'t", ",", "Ärger", ","]
    assert pickle.loads(pickle.dumps(tokenizer)).forward("A.b") == ["a", ",", "b"]
    assert RegexTokenizer([], []).forward("") == []
    with pytest.raises(RuntimeError, match="same size.*1 and 0"):
        RegexTokenizer(["a"], [])
