"""Objects of `torch.classes` in scripts, and in their archives."""

import io
import zipfile

import pytest

import tangrad
from tangrad import nn

jit = pytest.importorskip("tangrad_jit")
classes = tangrad.classes.torchtext


class Numbers(nn.Module):
    def __init__(self, vocab):
        super().__init__()
        self.vocab = vocab

    def forward(self, tokens: list[str]) -> list[int]:
        if "never" in self.vocab:
            return [len(self.vocab), self.vocab["never"]]
        self.vocab.set_default_index(0)
        return self.vocab.lookup_indices(tokens)


class Holder(nn.Module):
    def __init__(self, held):
        super().__init__()
        self.held = held

    def forward(self, line: str) -> list[str]:
        return self.held.forward(line)


def saved(module):
    file = io.BytesIO()
    tangrad.jit.save(tangrad.jit.script(module), file)
    return file


def loaded(file):
    file.seek(0)
    return tangrad.jit.load(file)


def test_a_script_calls_the_methods_of_an_object():
    module = Numbers(classes.Vocab(["<unk>", "a", "b"], None))
    assert isinstance(module.vocab, tangrad.ScriptObject)
    scripted = tangrad.jit.script(module)
    assert scripted(["b", "c"]) == [2, 0]
    assert loaded(saved(module))(["b", "c"]) == [2, 0]
    assert tangrad.jit.script(Numbers(classes.Vocab(["never"], None)))([]) == [1, 0]


def test_archives_hold_objects_as_pytorch_does():
    file = saved(Holder(classes.RegexTokenizer([",", "a"], [" , ", "b"], False)))
    with zipfile.ZipFile(file) as archive:
        code = next(n for n in archive.namelist() if "/code/" in n and n.endswith(".py"))
        assert b"__torch__.torch.classes.torchtext.RegexTokenizer" in archive.read(code)
        pickled = archive.read("archive/data.pkl")
    name = b"c__torch__.torch.classes.torchtext\nRegexTokenizer\n)\x81"
    assert name in pickled
    assert loaded(file)("a,c") == ["b", ",", "c"]


def test_an_error_of_an_object_has_the_scripts_line():
    class Missing(nn.Module):
        def __init__(self):
            super().__init__()
            self.vocab = classes.Vocab(["a"], None)

        def forward(self, token: str) -> int:
            return self.vocab[token]

    with pytest.raises(RuntimeError, match=r"return self\.vocab\[token\](.|\n)*Token b not found"):
        tangrad.jit.script(Missing())("b")


class WrongCall(nn.Module):
    def __init__(self):
        super().__init__()
        self.vocab = classes.Vocab(["a"], None)

    def forward(self) -> int:
        return self.vocab.lookup_indices(3)


class NoMethod(WrongCall):
    def forward(self) -> int:
        return self.vocab.sorted()


@pytest.mark.parametrize("module", [WrongCall, NoMethod])
def test_calls_are_checked_when_they_are_scripted(module):
    with pytest.raises(RuntimeError, match="lookup_indices|sorted"):
        tangrad.jit.script(module())


@pytest.mark.parametrize(
    "make",
    [
        lambda files: classes.Vectors(["a"], [0], tangrad.ones(1, 2), tangrad.zeros(2)),
        lambda files: classes.Regex("a+"),
        lambda files: classes.BERTEncoder(files("words"), True, None, ["[MASK]"]),
        lambda files: classes.GPT2BPEEncoder(
            files("byte_pairs")[0], files("byte_pairs")[1], "\u0001", letters(), False
        ),
        lambda files: tangrad.ops.torchtext.load_sp_model(files("pieces")),
    ],
)
def test_every_object_comes_back_from_an_archive(request, make):
    class Keeper(nn.Module):
        def __init__(self, kept):
            super().__init__()
            self.kept = kept

        def forward(self) -> int:
            return 3

    held = make(request.getfixturevalue)
    again = loaded(saved(Keeper(held))).kept
    assert type(again) is type(held)
    ours, theirs = again.__getstate__(), held.__getstate__()
    assert str(ours) == str(theirs)


def letters():
    from tangrad_text.byte_pairs import LETTERS

    return LETTERS


def test_a_class_that_is_not_there_says_so():
    with pytest.raises(RuntimeError, match=r"class 'torchtext\.None_', but it does not exist"):
        _ = classes.None_
    assert "Vocab" in dir(classes)
    with pytest.raises(RuntimeError, match="no name; write 'namespace::Name'"):
        tangrad.library.register_class("Vocab", int)
    with pytest.raises(RuntimeError, match="is the name of"):
        tangrad.library.register_class("torchtext::Vocab", int)
