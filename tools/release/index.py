"""Write a folder that pip takes for an index: `pip install --index-url file://FOLDER/simple`.

Pages are those of PEP 503, with hashes and what each file asks of Python; beside each wheel stands
its metadata (PEP 658), so that pip chooses before it downloads. Any server of files serves it.
"""

from __future__ import annotations

import hashlib
import html
import re
import tarfile
import zipfile
from collections import defaultdict
from pathlib import Path

PAGE = """<!DOCTYPE html>
<html><head><meta name="pypi:repository-version" content="1.1"><title>{title}</title></head><body>
{lines}
</body></html>
"""


def write(folder: Path) -> None:
    """Write the pages for all files of a release.

    Args:
        folder: has a folder `files`, and gets a folder `simple`.
    """
    by_project = defaultdict(list)
    for path in sorted((folder / "files").iterdir()):
        if path.name.endswith((".whl", ".tar.gz")):
            by_project[project_of(path.name)].append(path)
    for project, files in by_project.items():
        page = folder / "simple" / project / "index.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(PAGE.format(title=project, lines="\n".join(map(_line, files))), "utf-8")
    links = [f'<a href="{project}/">{project}</a><br>' for project in sorted(by_project)]
    text = PAGE.format(title="simple index", lines="\n".join(links))
    (folder / "simple" / "index.html").write_text(text, "utf-8")


def project_of(name: str) -> str:
    """Return the normalised name of the project of a wheel or source distribution."""
    project = name.partition("-")[0] if name.endswith(".whl") else name.rpartition("-")[0]
    return re.sub(r"[-_.]+", "-", project).lower()


def digest(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def metadata_of(path: Path) -> str:
    """Return the metadata of a wheel or a source distribution.

    Raises:
        ValueError: it has none.
    """
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            for name in wheel.namelist():
                if name.endswith(".dist-info/METADATA"):
                    return wheel.read(name).decode("utf-8")
    else:
        with tarfile.open(path) as archive:
            for entry in archive:
                if entry.name.count("/") == 1 and entry.name.endswith("/PKG-INFO"):
                    return archive.extractfile(entry).read().decode("utf-8")
    raise ValueError(f"{path.name} has no metadata")


def _line(path: Path) -> str:
    """Return the link to a file, and write the metadata of a wheel beside it."""
    attributes = {"href": f"../../files/{path.name}#sha256={digest(path)}"}
    if path.suffix == ".whl":
        text = metadata_of(path)
        beside = path.with_name(f"{path.name}.metadata")
        beside.write_text(text, "utf-8")
        attributes["data-core-metadata"] = f"sha256={digest(beside)}"
        attributes["data-dist-info-metadata"] = attributes["data-core-metadata"]
        for line in text.partition("\n\n")[0].splitlines():
            if line.startswith("Requires-Python: "):
                attributes["data-requires-python"] = line.partition(": ")[2]
    said = " ".join(f'{key}="{html.escape(value)}"' for key, value in attributes.items())
    return f"<a {said}>{path.name}</a><br>"
