"""Archives that are whole, damaged, or reach out of the folder that they are extracted to."""

import gzip
import io
import os
import tarfile
import zipfile

import pytest

from tangrad_text.archives import Archive, extract_archive


def tar(path, *members):
    with tarfile.open(path, "w:gz") as file:
        for name, content in members:
            member = name if isinstance(name, tarfile.TarInfo) else tarfile.TarInfo(name)
            member.size = len(content)
            file.addfile(member, io.BytesIO(content))
    return str(path)


def packed_zip(path, *members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members:
            file.writestr(name, content)
    return str(path)


def left(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize(
    ("pack", "name"), [(tar, "a.tar.gz"), (tar, "a.tgz"), (packed_zip, "a.zip")]
)
def test_files_are_extracted_and_not_replaced_unasked(tmp_path, pack, name):
    archive = pack(tmp_path / name, ("sub/one.txt", b"one"), ("two.txt", b"two"))
    target = tmp_path / "to"
    expected = [str(target / "sub/one.txt"), str(target / "two.txt")]
    assert extract_archive(archive, str(target)) == expected
    assert (target / "sub/one.txt").read_bytes() == b"one"
    (target / "two.txt").write_bytes(b"mine")
    assert extract_archive(archive, str(target)) == expected
    assert (target / "two.txt").read_bytes() == b"mine"
    extract_archive(archive, str(target), overwrite=True)
    assert (target / "two.txt").read_bytes() == b"two"
    assert left(target) == ["sub", "sub/one.txt", "two.txt"]


def test_a_gz_stands_beside_its_content(tmp_path):
    (tmp_path / "words.txt.gz").write_bytes(gzip.compress(b"words"))
    archive = str(tmp_path / "words.txt.gz")
    assert extract_archive(archive) == [str(tmp_path / "words.txt")]
    assert (tmp_path / "words.txt").read_bytes() == b"words"


@pytest.mark.parametrize("outside", ["../out.txt", "sub/../../out.txt", "/out.txt"])
@pytest.mark.parametrize(("pack", "name"), [(tar, "a.tar.gz"), (packed_zip, "a.zip")])
def test_a_member_outside_the_folder_is_refused(tmp_path, pack, name, outside):
    archive = pack(tmp_path / name, ("inside.txt", b"1"), (outside, b"2"))
    target = tmp_path / "to"
    with pytest.raises(RuntimeError, match=f"{name}: member .*out.txt' lies outside"):
        extract_archive(archive, str(target))
    assert left(target) == []
    assert not (tmp_path / "out.txt").exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_refused(tmp_path, kind):
    link = tarfile.TarInfo("link")
    link.type, link.linkname = kind, "/etc/passwd"
    with pytest.raises(RuntimeError, match="'link' is a link or a device"):
        extract_archive(tar(tmp_path / "a.tar.gz", (link, b"")), str(tmp_path / "to"))
    assert left(tmp_path / "to") == []


@pytest.mark.parametrize(("pack", "name"), [(tar, "a.tar.gz"), (packed_zip, "a.zip")])
@pytest.mark.parametrize("part", [0.0, 0.3, 0.6, 0.9])
def test_nothing_of_a_cut_archive_stays(tmp_path, pack, name, part):
    archive = pack(tmp_path / name, *((f"{k}.txt", os.urandom(20_000)) for k in range(4)))
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[: int(part * len(content))])
    with pytest.raises(RuntimeError, match=f"{name}: .*nothing of it was extracted"):
        extract_archive(archive, str(tmp_path / "to"))
    assert left(tmp_path / "to") == []


def test_a_cut_gz_leaves_what_was_there(tmp_path):
    (tmp_path / "w.txt").write_bytes(b"mine")
    (tmp_path / "w.txt.gz").write_bytes(gzip.compress(os.urandom(9_000))[:5_000])
    with pytest.raises(RuntimeError, match=r"w\.txt\.gz: .*nothing of it"):
        extract_archive(str(tmp_path / "w.txt.gz"))
    assert (tmp_path / "w.txt").read_bytes() == b"mine"


def test_another_ending_is_refused_by_name():
    with pytest.raises(NotImplementedError, match="not 'words.7z'"):
        extract_archive("words.7z")


def test_what_others_write_beside_a_failing_extraction_stays(tmp_path):
    archive = packed_zip(tmp_path / "a.zip", ("one.txt", b"1"), ("../out.txt", b"2"))
    (tmp_path / "others.txt").touch()
    with Archive(archive) as file, pytest.raises(RuntimeError, match="lies outside"):
        file.extractall(str(tmp_path))
    assert left(tmp_path) == ["a.zip", "others.txt"]
    with Archive(packed_zip(tmp_path / "b.zip", ("others.txt", b"1"))) as file:
        file.extractall(str(tmp_path))
    assert (tmp_path / "others.txt").read_bytes() == b"1"
