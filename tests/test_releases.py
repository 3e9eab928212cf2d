"""A release: one version, complete metadata, checked files, the same bytes twice, an index."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from build_wheelhouse import package_folders  # noqa: E402
from tools.release import bill, index, link, sdists, sizes, wheels  # noqa: E402
from tools.release import version as versions  # noqa: E402

EPOCH = 1_800_000_000
DIST = ROOT / "dist"
PACKAGES = package_folders()


def project(folder: Path) -> dict[str, object]:
    return tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]


def name_of(folder: Path) -> str:
    return str(folder.relative_to(ROOT))


def test_the_version_stands_in_one_place_and_everything_else_has_it() -> None:
    assert not list(versions.stale(versions.of_release()))


def test_another_version_is_written_wherever_one_stands() -> None:
    changed = set(versions.stale("7.8.9"))
    assert {folder / "pyproject.toml" for folder in PACKAGES} <= changed
    assert ROOT / "CITATION.cff" in changed
    core = ROOT / "core" / "src" / "tangrad" / "discovery" / "__init__.py"
    assert 'VERSION = "7.8.9"' in versions.written(core, "7.8.9")
    text = versions.written(ROOT / "plugins" / "optim" / "pyproject.toml", "7.8.9")
    assert '"tangrad-nn~=7.8.0"' in text
    assert '\nversion = "7.8.9"' in text
    assert not re.search(r"tangrad[\w-]*(\[[^\]]*\])?~=(?!7\.8\.0)", text)


def test_a_version_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        versions.main(["next"])
    assert "next is no version of three numbers" in capsys.readouterr().err


@pytest.mark.parametrize("folder", PACKAGES, ids=name_of)
def test_the_metadata_of_a_package_are_complete(folder: Path) -> None:
    told, core = project(folder), project(ROOT / "core")
    for key in ("version", "license", "license-files", "authors", "requires-python", "keywords"):
        assert told[key] == core[key], key
    assert told["description"]
    assert (folder / str(told["readme"])).stat().st_size > 200
    assert (folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert set(core["classifiers"]) - {"Programming Language :: Cython"} <= set(told["classifiers"])
    assert told.get("urls") == core.get("urls")


@pytest.mark.parametrize("folder", PACKAGES, ids=name_of)
def test_every_package_says_that_it_is_typed(folder: Path) -> None:
    roots = [path.parent for path in folder.glob("src/tangrad_*/__init__.py")]
    document = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))
    data = document["tool"]["setuptools"].get("package-data", {})
    for root in roots:
        assert (root / "py.typed").exists(), root
        assert "py.typed" in data[root.name]


def test_the_citation_names_the_project_as_its_metadata_do() -> None:
    lines = (ROOT / "CITATION.cff").read_text("utf-8").splitlines()
    said = dict(line.split(": ", 1) for line in lines if ": " in line)
    told = project(ROOT)
    assert said["version"] == told["version"]
    assert said["license"] == told["license"]
    assert said["title"] == told["name"]


def test_the_linker_is_told_which_glibc_and_nothing_that_it_has_no_word_for() -> None:
    given = ["a.o", "-o", "a.so", "-Wl,--strip-all", "-Wl,-z,noseparate-code", "-pthread"]
    command = link.command("x86_64-linux-gnu.2.28", given)
    assert command[1:6] == ["-m", "ziglang", "cc", "-shared", "-target"]
    assert command[6:] == ["x86_64-linux-gnu.2.28", *given[:4], "-pthread"]


def test_builds_for_a_release_are_linked_by_it_and_dated() -> None:
    said = wheels.settings(EPOCH)
    assert said["LDSHARED"].endswith("-linux-gnu.2.28")
    assert said["SOURCE_DATE_EPOCH"] == str(EPOCH)
    assert wheels.tag("x86_64") == "manylinux_2_28_x86_64"


def make_wheel(
    folder: Path, name: str, *requires: str, version: str = "0.2.0", body: str = ""
) -> Path:
    """Write a wheel of one module, as far as pip looks at it."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    head = f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\nSummary: A part\n"
    head += "License-Expression: BSD-3-Clause\nRequires-Python: >=3.11\n"
    head += "".join(f"Requires-Dist: {line}\n" for line in requires)
    extras = re.findall(r'extra == "([a-z]+)"', head)
    head += "".join(f"Provides-Extra: {extra}\n" for extra in extras)
    files = {
        f"{module}/__init__.py": body,
        f"{info}/METADATA": f"{head}\nA text\nName: not this\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    path = folder / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for place, text in files.items():
            archive.writestr(place, text)
    return path


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """A release of three packages with wheels, and of one that has its sources only."""
    files = tmp_path / "files"
    files.mkdir()
    make_wheel(
        files, "tangrad", "tangrad-core~=0.2.0", 'tangrad-cpu~=0.2.0; extra == "cpu"', body="x = 1"
    )
    make_wheel(files, "tangrad-core")
    make_wheel(files, "tangrad-cpu", "tangrad-core~=0.2.0", "numpy>=1.26", 'rich; extra == "live"')
    for name in ("core", "emulator"):
        told = f"Metadata-Version: 2.4\nName: tangrad-{name}\nVersion: 0.2.0\nSummary: A part\n"
        told += "License-Expression: BSD-3-Clause\n"
        with tarfile.open(files / f"tangrad_{name}-0.2.0.tar.gz", "w:gz") as opened:
            entry = tarfile.TarInfo(f"tangrad_{name}-0.2.0/PKG-INFO")
            entry.size = len(told)
            opened.addfile(entry, io.BytesIO(told.encode()))
    return tmp_path


def pip_from(release: Path, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pip with the release's index and nothing that is configured on this machine."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PIP_")}
    address = (release / "simple").as_uri()
    return subprocess.run(
        [sys.executable, "-m", "pip", command, "--quiet", "--index-url", address, *arguments],
        capture_output=True,
        text=True,
        env={**clean, "PIP_CONFIG_FILE": os.devnull},
        check=False,
    )


def test_pip_resolves_a_release_from_its_index(release: Path, tmp_path: Path) -> None:
    for path in (release / "files").glob("tangrad_cpu*.whl"):
        path.unlink()
    make_wheel(release / "files", "tangrad-cpu", "tangrad-core~=0.2.0")
    index.write(release)
    site = tmp_path / "site"
    done = pip_from(release, "install", "--target", str(site), "tangrad[cpu]")
    assert done.returncode == 0, done.stderr
    assert {path.name for path in site.iterdir()} >= {"tangrad", "tangrad_core", "tangrad_cpu"}


def test_a_file_that_was_changed_is_refused_by_its_hash(release: Path, tmp_path: Path) -> None:
    index.write(release)
    make_wheel(release / "files", "tangrad-core", body="changed = True")
    done = pip_from(release, "download", "--dest", str(tmp_path), "tangrad-core")
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr


def test_the_pages_tell_hashes_metadata_and_what_is_asked_of_python(release: Path) -> None:
    index.write(release)
    page = (release / "simple" / "tangrad-core" / "index.html").read_text("utf-8")
    wheel = release / "files" / "tangrad_core-0.2.0-py3-none-any.whl"
    assert f'href="../../files/{wheel.name}#sha256={index.digest(wheel)}"' in page
    assert 'data-requires-python="&gt;=3.11"' in page
    assert "tangrad_core-0.2.0.tar.gz#sha256=" in page
    beside = wheel.with_name(f"{wheel.name}.metadata")
    assert beside.read_text("utf-8") == index.metadata_of(wheel)
    assert f'data-core-metadata="sha256={index.digest(beside)}"' in page
    listed = (release / "simple" / "index.html").read_text("utf-8")
    assert re.findall(r'href="([^"]+)"', listed) == [
        *("tangrad/", "tangrad-core/", "tangrad-cpu/", "tangrad-emulator/")
    ]


def test_the_bill_names_every_file_and_everything_that_is_asked_for(release: Path) -> None:
    path = bill.write(release, EPOCH, {"zig": "1.0"})
    said = json.loads(path.read_text("utf-8"))
    assert (said["bomFormat"], said["specVersion"]) == ("CycloneDX", "1.6")
    assert said["metadata"]["timestamp"] == "2027-01-15T08:00:00Z"
    assert said["metadata"]["component"]["purl"] == "pkg:pypi/tangrad@0.2.0"
    by_name = {entry["name"]: entry for entry in said["components"]}
    assert set(by_name) == {"tangrad-core", "tangrad-cpu", "tangrad-emulator", "numpy", "rich"}
    assert (by_name["numpy"]["scope"], by_name["rich"]["scope"]) == ("required", "optional")
    assert by_name["numpy"]["properties"][0]["value"] == ">=1.26"
    assert by_name["tangrad-core"]["licenses"] == [{"license": {"id": "BSD-3-Clause"}}]
    parts = by_name["tangrad-core"]["components"]
    held = {part["name"]: part["hashes"][0]["content"] for part in parts}
    assert held == {
        path.name: index.digest(path) for path in (release / "files").glob("tangrad_core-*")
    }
    known = {entry["bom-ref"] for entry in said["components"]}
    known.add(said["metadata"]["component"]["bom-ref"])
    edges = {entry["ref"]: entry["dependsOn"] for entry in said["dependencies"]}
    assert {ref for refs in edges.values() for ref in refs} | set(edges) <= known
    assert edges["pkg:pypi/tangrad-cpu@0.2.0"] == [
        "pkg:pypi/numpy",
        "pkg:pypi/rich",
        "pkg:pypi/tangrad-core@0.2.0",
    ]
    before = path.read_bytes()
    assert bill.write(release, EPOCH, {"zig": "1.0"}).read_bytes() == before


def test_a_file_above_its_limit_is_named(release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = list((release / "files").iterdir())
    assert sizes.wrong(files) == []
    monkeypatch.setattr(sizes, "LIMITS", {"tangrad-core": 1e-6})
    monkeypatch.setattr(sizes, "TOGETHER", 1e-6)
    lines = sizes.wrong(files)
    assert len(lines) == 3
    assert "tangrad_core-0.2.0-py3-none-any.whl has 0.00 MiB, more than 1e-06" in lines
    assert lines[-1].startswith("all wheels together")


def archive(path: Path, names: list[str], moment: int) -> Path:
    """Write a `.tar.gz` as a build at some moment does."""
    with tarfile.open(path, "w:gz") as opened:
        for name in names:
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.uname = len(name), moment, f"user{moment}"
            entry.mode = 0o664 if moment % 2 else 0o644
            opened.addfile(entry, io.BytesIO(name.encode()))
    return path


def test_a_source_distribution_does_not_depend_on_who_made_it_and_when(tmp_path: Path) -> None:
    first = archive(tmp_path / "first.tar.gz", ["a/b", "a/c"], 1)
    second = archive(tmp_path / "second.tar.gz", ["a/c", "a/b"], 2)
    for path in (first, second):
        sdists.settle(path, EPOCH)
    assert first.read_bytes() == second.read_bytes()
    with tarfile.open(first) as opened:
        assert [(e.name, e.mtime, e.uname, e.mode) for e in opened.getmembers()] == [
            ("a/b", EPOCH, "", 0o644),
            ("a/c", EPOCH, "", 0o644),
        ]
        assert opened.extractfile("a/c").read() == b"a/c"
