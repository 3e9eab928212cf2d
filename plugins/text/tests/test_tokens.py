"""Tokens of GPT-2, CLIP and BERT, compared with what the library `tokenizers` gives by itself."""

import copy
import pickle
import random

import pytest

from tangrad_text.byte_pairs import LETTERS, CLIPEncoder, GPT2BPEEncoder, words_of
from tangrad_text.word_pieces import BERTEncoder

tokenizers = pytest.importorskip("tokenizers")
TEXTS = [
    "Hello there,  it's  us: they'll say 'we've 12½ cafés'!\n\n  And\ttabs ",
    "",
    " ",
    "日本語 and ᑌᑎIᑕOᗪᕮ 🙂\u00a0x\u2003y",
    "don'tHELLO  \n x",
]


def random_texts(count):
    chooser = random.Random(0)
    letters = " \n\tab'’sSdé½9_.,\u00a0日🙂"
    return ["".join(chooser.choices(letters, k=30)) for _ in range(count)]


@pytest.fixture(scope="module")
def gpt2(byte_pairs):
    vocabulary, ranks, _ = byte_pairs
    return GPT2BPEEncoder(vocabulary, ranks, "\u0001", LETTERS, True)


def test_gpt2s_tokens_are_the_librarys(gpt2, byte_pairs):
    library = tokenizers.ByteLevelBPETokenizer(*byte_pairs[2])
    for text in TEXTS + random_texts(100):
        own = library.encode(text)
        assert gpt2.encode(text) == own.ids
        assert gpt2.tokenize(text) == own.tokens
        assert gpt2.decode(own.ids) == text


def test_words_are_those_that_the_library_cuts():
    cut = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    for text in TEXTS + random_texts(100):
        found = [text[start:end] for _, (start, end) in cut.pre_tokenize_str(text)]
        assert words_of(text) == found


def test_special_tokens_are_never_cut(byte_pairs):
    vocabulary, ranks, _ = byte_pairs
    encoder = GPT2BPEEncoder(vocabulary, ranks, "\u0001", LETTERS, True)
    known = next(token for token in vocabulary if len(token) > 3 and token.isalpha())
    added = encoder.add_special_tokens({"eos_token": "<|end|>", "unk_token": known}, ["[x]"])
    assert added == 2
    assert encoder.add_special_tokens({"eos_token": "<|end|>"}, []) == 0
    size = len(vocabulary)
    text = f"a <|end|> b{known}<|end|>   [x]"
    numbers = encoder.encode(text)
    plain = [encoder.encode(part) for part in ("a", "b", " ")]
    assert numbers == [
        *plain[0], size, *plain[1], vocabulary[known], size, *plain[2], size + 1
    ]  # fmt: skip
    assert encoder.tokenize("a <|end|> b")[1] == "<|end|>"
    assert (
        encoder.decode([size, size, *encoder.encode("a b"), size]) == "<|end|> <|end|> a b <|end|>"
    )
    with pytest.raises(RuntimeError, match="a special token is empty"):
        encoder.add_special_tokens({}, [""])


@pytest.mark.parametrize("kind", [GPT2BPEEncoder, CLIPEncoder])
def test_encoders_are_pickled_and_copied(byte_pairs, kind):
    vocabulary, ranks, _ = byte_pairs
    suffix = {f"{letter}</w>": 9000 + k for k, letter in enumerate(LETTERS.values())}
    made = kind({**vocabulary, **suffix}, ranks, "\u0001", LETTERS, False)
    for again in (pickle.loads(pickle.dumps(made)), copy.deepcopy(made)):
        assert type(again) is kind
        assert again.encode("some text") == made.encode("some text")


WRONG = {
    "twins": ({"a": 0, "b": 0}, {}, "'a' and 'b' both have number 0"),
    "holes": (
        {"a": 0, "b": 1},
        {"a\u0001b": 0},
        "merge 0, 'a' and 'b': .* has no 'ab'",
    ),
    "one part": ({"a": 0}, {"a": 4}, "merge 4 names one token, 'a'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_vocabularies_with_holes_and_twins_are_refused(name):
    vocabulary, ranks, said = WRONG[name]
    with pytest.raises(RuntimeError, match=said):
        GPT2BPEEncoder(vocabulary, ranks, "\u0001", LETTERS, True)
    with pytest.raises(RuntimeError, match="bytes_to_unicode"):
        GPT2BPEEncoder({}, {}, "\u0001", {0: "a"}, True)


def test_bytes_without_tokens_and_numbers_without_texts_are_refused(gpt2):
    few = GPT2BPEEncoder({"a": 0, "b": 1, "ab": 2}, {"a\u0001b": 0}, "\u0001", LETTERS, True)
    assert few.encode("abba") == [2, 1, 0]
    with pytest.raises(RuntimeError, match="no token for the bytes of 'c', at 2"):
        few.encode("abc")
    with pytest.raises(RuntimeError, match="no token has the number 9, at position 1"):
        few.decode([2, 9])
    for encode in (gpt2.encode, gpt2.tokenize):
        with pytest.raises(RuntimeError, match="half of a pair of UTF-16 at 1"):
            encode("a\ud800")
        with pytest.raises(RuntimeError, match="a text was expected, got int"):
            encode(3)


@pytest.fixture(scope="module")
def clip():
    letters = list(LETTERS.values())
    merges = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o</w>"), ("t", "h"), ("th", "e</w>")]
    tokens = [*letters, *(f"{x}</w>" for x in letters), *("".join(m) for m in merges)]
    tokens += ["<|startoftext|>", "<|endoftext|>"]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    ranks = {"\u0001".join(pair): rank for rank, pair in enumerate(merges)}
    return CLIPEncoder(vocabulary, ranks, "\u0001", LETTERS, True), vocabulary, merges


def test_clips_words_end_with_a_mark(clip):
    encoder, vocabulary, _ = clip
    assert encoder.tokenize("hello the 12's!?") == [
        "hello</w>", "the</w>", "1</w>", "2</w>", "'", "s</w>", "!", "?</w>"
    ]  # fmt: skip
    assert encoder.tokenize("<|startoftext|>hello<|endoftext|>")[::2] == [
        "<|startoftext|>",
        "<|endoftext|>",
    ]
    assert encoder.encode("<|endoftext|>") == [vocabulary["<|endoftext|>"]]


def test_clips_tokens_are_the_librarys(clip):
    encoder, vocabulary, merges = clip
    # As the library's converter of CLIP's tokenizer puts it together.
    own = tokenizers.Tokenizer(
        tokenizers.models.BPE(
            vocabulary, merges, end_of_word_suffix="</w>", continuing_subword_prefix="",
            unk_token="<|endoftext|>",
        )
    )  # fmt: skip
    own.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [
            tokenizers.pre_tokenizers.Split(
                tokenizers.Regex(r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"),
                behavior="removed",
                invert=True,
            ),
            tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    for text in TEXTS + random_texts(60):
        expected = own.encode(text.lower(), add_special_tokens=False)
        assert encoder.tokenize(text.lower()) == expected.tokens


@pytest.mark.parametrize(
    ("lower", "strip"), [(True, None), (True, False), (False, None), (False, True)]
)
def test_berts_tokens_are_the_librarys(words, lower, strip):
    library = tokenizers.BertWordPieceTokenizer(words, lowercase=lower, strip_accents=strip)
    encoder = BERTEncoder(words, lower, strip, [])
    for text in [*TEXTS, *random_texts(40), "x" * 101, "naïve Straße"]:
        expected = library.encode(text, add_special_tokens=False)
        assert encoder.tokenize(text) == expected.tokens
        assert encoder.encode(text) == expected.ids
        assert encoder.batch_encode([text, text]) == [expected.ids] * 2
        assert encoder.batch_tokenize([text]) == [expected.tokens]


def test_words_that_are_never_split_keep_capitals_and_punctuation(tmp_path):
    file = tmp_path / "vocab.txt"
    file.write_text("[UNK]\n[MASK]\na\nmask\n[\n]\nA.B\nb\n.\n", "utf-8")
    plain = BERTEncoder(str(file), True, None, [])
    assert plain.tokenize("a [MASK] A.B") == ["a", "[", "mask", "]", "a", ".", "b"]
    kept = BERTEncoder(str(file), True, None, ["[MASK]", "A.B"])
    assert kept.tokenize("a [MASK] A.B b") == ["a", "[MASK]", "A.B", "b"]
    assert kept.tokenize("a[MASK]") == ["a", "[", "mask", "]"]
    assert kept.batch_encode(["A [MASK]"]) == [[2, 1]]
    again = pickle.loads(pickle.dumps(kept))
    assert again.tokenize("A [MASK]") == ["a", "[MASK]"]


def test_a_vocabulary_of_words_that_lacks_what_is_needed_says_so(tmp_path):
    file = tmp_path / "vocab.txt"
    with pytest.raises(RuntimeError, match="Cannot open input file"):
        BERTEncoder(str(file), True, None, [])
    file.write_text("a\nb\na\n\n")
    encoder = BERTEncoder(str(file), True, None, [])
    assert encoder.vocab_.get_itos() == ["a", "b", "\n"]
    with pytest.raises(RuntimeError, match=r"Token \[UNK\] not found"):
        encoder.encode("c")
    with pytest.raises(RuntimeError, match="half of a pair of UTF-16 at 0"):
        encoder.encode("\udfff")
    file.write_bytes(b"a\n\xff\n")
    with pytest.raises(RuntimeError, match="vocab.txt, line 2: no UTF-8"):
        BERTEncoder(str(file), True, None, [])
