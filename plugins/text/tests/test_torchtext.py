"""Torchtext of PyPI, unchanged: a classifier in its tutorial's form trains with 0.18 and 0.6.0."""

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).resolve().parents[3] / "libraries" / "programs"
OLD = Path(sys.prefix, "apart", "torchtext==0.6.0")


def version():
    try:
        return importlib.metadata.version("torchtext")
    except importlib.metadata.PackageNotFoundError:
        return ""


def run(arguments, folder, before=""):
    """Run a program on tangrad in a process of its own, and return what it told."""
    paths = filter(None, [before, os.environ.get("PYTHONPATH")])
    told = subprocess.run(
        [sys.executable, "-m", "tangrad", "run", *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONWARNINGS": "ignore",
            "OUTCOME_FOLDER": str(folder),
        },
    )
    assert told.returncode == 0, told.stderr[-3000:]
    lines = [line.partition(" ")[2] for line in told.stdout.splitlines() if "OUTCOME" in line]
    return {found["name"]: found["value"] for found in map(json.loads, lines)}


@pytest.fixture
def newest():
    if not version().startswith("0.18"):
        pytest.skip("torchtext 0.18 is not installed")
    pytest.importorskip("torchdata", reason="torchdata 0.9.0 is not installed")


def test_a_classifier_trains_with_torchtext_0_18(newest, tmp_path):
    found = run([str(PROGRAMS / "torchtext_.py")], tmp_path)
    losses = found["losses"]
    assert sum(losses[-5:]) < 0.7 * sum(losses[:5])
    assert found["accuracy"] > 0.6
    assert found["numbers"][-1] == 0  # a word that no sentence has


@pytest.mark.skipif(not OLD.exists(), reason="torchtext 0.6.0 is not installed apart")
def test_a_classifier_trains_with_torchtext_0_6(tmp_path):
    losses = run([str(PROGRAMS / "torchtext_before_0_9_.py")], tmp_path, str(OLD))["losses"]
    assert sum(losses[-5:]) < 0.95 * sum(losses[:5])


SCRIPT = """
import io, json, sys
import torch, torchtext
torchtext.disable_torchtext_deprecation_warning()
from torchtext import transforms, vocab
from torchtext.prototype.transforms import sentencepiece_tokenizer
vocabulary, merges, pieces, words = sys.argv[1:]
made = vocab.build_vocab_from_iterator([["a", "b", "a"]], specials=["<unk>"])
made.set_default_index(0)
chain = transforms.Sequential(transforms.VocabTransform(made), transforms.AddToken(9))
scripted = torch.jit.script(chain)
told = {"chain": scripted(["a", "c"]), "eager": chain(["a", "c"])}
for name, module in (
    ("gpt2", transforms.GPT2BPETokenizer(vocabulary, merges)),
    ("bert", transforms.BERTTokenizer(words, return_tokens=True)),
    ("pieces", transforms.SentencePieceTokenizer(pieces)),
):
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(module), file)
    file.seek(0)
    again = torch.jit.load(file)
    told[name] = [module("some names"), again("some names")]
print("OUTCOME", json.dumps({"name": "all", "value": told}))
"""


def test_torchtexts_modules_are_scripted_and_saved(newest, tmp_path, byte_pairs, pieces, words):
    program = tmp_path / "program.py"
    program.write_text(SCRIPT)
    found = run([str(program), *byte_pairs[2], pieces, words], tmp_path)["all"]
    assert found["chain"] == found["eager"] == [9, 1, 0]
    for name in ("gpt2", "bert", "pieces"):
        eager, loaded = found[name]
        assert eager == loaded
        assert len(eager) > 1


WITHOUT = """
import json, sys
import torchtext
from torchtext import _torchtext, transforms
sys.modules["tokenizers"] = sys.modules["sentencepiece"] = None
said = []
letters = transforms.bytes_to_unicode()
for make in (
    lambda: _torchtext.GPT2BPEEncoder({}, {}, " ", letters, True),
    lambda: _torchtext.SentencePiece(b""),
):
    try:
        make()
    except ImportError as error:
        said.append(str(error))
print("OUTCOME", json.dumps({"name": "said", "value": said}))
"""


def test_what_needs_a_library_names_it(newest, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(WITHOUT)
    said = run([str(program)], tmp_path)["said"]
    for name, text in zip(("tokenizers", "sentencepiece"), said, strict=True):
        assert f"pip install 'tangrad-text[{name}]'" in text


GUARDED = """
import gzip, io, json, os, sys, tarfile, zipfile
import torch, torchtext
torchtext.disable_torchtext_deprecation_warning()
from torchtext import datasets, utils, vocab
said = {}
def refused(name, call):
    try:
        call()
    except RuntimeError as error:
        said[name] = str(error)

def tar(path, *members):
    with tarfile.open(path, "w:gz") as file:
        for name in members:
            member = tarfile.TarInfo(name)
            member.size = 4
            file.addfile(member, io.BytesIO(b"a 1\\n"))

tar("leaves.tar.gz", "first.txt", "../outside.txt")
refused("extraction", lambda: utils.extract_archive("leaves.tar.gz", "to"))
os.makedirs("vectors")
tar("vectors/leaves.tar.gz", "first.txt", "../../outside.txt")
refused("vectors", lambda: vocab.Vectors("v.txt", "vectors", "http://nowhere/leaves.tar.gz"))
with zipfile.ZipFile("vectors/cut.zip", "w") as file:
    file.writestr("v.txt", os.urandom(9000))
content = open("vectors/cut.zip", "rb").read()
open("vectors/cut.zip", "wb").write(content[:200] + content[300:])
refused("cut", lambda: vocab.Vectors("v.txt", "vectors", "http://nowhere/cut.zip"))
os.makedirs("data/datasets/AG_NEWS")
open("data/datasets/AG_NEWS/test.csv", "w").write('"1","a","b"\\n')
refused("checksum", lambda: list(datasets.AG_NEWS("data", split="test")))
places = ("to", "vectors", "data/datasets/AG_NEWS")
said["left"] = sorted(name for place in places for name in os.listdir(place))
said["filter"] = tarfile.TarFile.extraction_filter  # of the whole process: it is not ours
print("OUTCOME", json.dumps({"name": "said", "value": said}))
"""


def test_what_torchtext_does_not_check_is_checked(newest, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(GUARDED)
    said = run([str(program)], tmp_path)["said"]
    assert "leaves.tar.gz: member '../outside.txt' lies outside" in said["extraction"]
    assert "leaves.tar.gz: member '../../outside.txt' lies outside" in said["vectors"]
    assert "cut.zip: " in said["cut"]
    assert "nothing of it was extracted" in said["cut"]
    assert "test.csv: the md5 checksum of this file is not" in said["checksum"]
    assert said["left"] == ["cut.zip", "leaves.tar.gz", "test.csv"]
    assert said["filter"] is None
