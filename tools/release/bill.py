"""Write the bill of materials of a release: CycloneDX 1.6, in JSON.

A release has no file of another project in it: what is told are its packages, their files with
hashes, what they ask for when they are installed, and the tools that they were made with. The
form is small enough to be written by hand; tests/test_releases.py holds it against the schema's
rules that it uses.
"""

from __future__ import annotations

import datetime
import json
import uuid
from collections.abc import Iterable, Mapping
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from tools.release.index import digest, metadata_of, project_of

NAME = "tangrad.cdx.json"


def write(folder: Path, epoch: int, tools: Mapping[str, str]) -> Path:
    """Write the bill for the files of a release.

    Args:
        folder: has a folder `files`; the bill is put beside it.
        epoch: date of the release, in seconds since 1970.
        tools: {name: version} of what made it.
    """
    files = sorted(
        path for path in (folder / "files").iterdir() if path.name.endswith((".whl", ".tar.gz"))
    )
    metadata = {project_of(path.name): HeaderParser().parsestr(metadata_of(path)) for path in files}
    ours = [_package(project, told, files) for project, told in sorted(metadata.items())]
    wanted = {project: _requirements(told) for project, told in metadata.items()}
    theirs = _foreign(wanted)
    refs = {entry["name"]: entry["bom-ref"] for entry in [*ours, *theirs]}
    main = next(entry for entry in ours if entry["name"] == "tangrad")
    moment = datetime.datetime.fromtimestamp(epoch, datetime.UTC)
    content = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        # Made of the files, so that the same release has the same bill.
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, ' '.join(map(digest, files)))}",
        "version": 1,
        "metadata": {
            "timestamp": moment.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "tools": {
                "components": [
                    {"type": "application", "name": name, "version": version}
                    for name, version in sorted(tools.items())
                ]
            },
            "component": {key: value for key, value in main.items() if key != "components"},
        },
        "components": [entry for entry in ours if entry is not main] + theirs,
        "dependencies": [
            {"ref": refs[project], "dependsOn": sorted({refs[r.name] for r in wanted[project]})}
            for project in sorted(wanted)
        ],
    }
    path = folder / NAME
    path.write_text(json.dumps(content, indent=1) + "\n", "utf-8")
    return path


def _package(project: str, told: Any, files: Iterable[Path]) -> dict[str, Any]:
    purl = f"pkg:pypi/{project}@{told['Version']}"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": project,
        "version": told["Version"],
        "description": told["Summary"],
        "licenses": [{"license": {"id": told["License-Expression"]}}],
        "purl": purl,
        "components": [
            {
                "type": "file",
                "bom-ref": path.name,
                "name": path.name,
                "hashes": [{"alg": "SHA-256", "content": digest(path)}],
            }
            for path in files
            if project_of(path.name) == project
        ],
    }


def _requirements(told: Any) -> list[Requirement]:
    return [Requirement(line) for line in told.get_all("Requires-Dist", [])]


def _foreign(wanted: Mapping[str, list[Requirement]]) -> list[dict[str, Any]]:
    """Return what is asked for and not in the release, with the versions that are asked for."""
    asked: dict[str, set[str]] = {}
    needed = set()
    for requirements in wanted.values():
        for requirement in requirements:
            if requirement.name not in wanted:
                asked.setdefault(requirement.name, set()).add(str(requirement.specifier))
                if requirement.marker is None:
                    needed.add(requirement.name)
    return [
        {
            "type": "library",
            "bom-ref": f"pkg:pypi/{name}",
            "name": name,
            "scope": "required" if name in needed else "optional",
            "purl": f"pkg:pypi/{name}",
            "properties": [
                {"name": "tangrad:asked-for", "value": said} for said in sorted(versions) if said
            ],
        }
        for name, versions in sorted(asked.items())
    ]
