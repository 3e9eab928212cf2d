"""Throwaway distributions: a folder on `sys.path` with modules and hand-written metadata."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import tangrad
from tangrad.devices import registry
from tangrad.discovery import discovery


class Site:
    """A folder that distributions are installed into and uninstalled from."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(
        self,
        distribution: str,
        entry_points: Mapping[str, Mapping[str, str]],
        modules: Mapping[str, str],
        version: str = "1.0",
        requires: str = "",
    ) -> None:
        for path, source in modules.items():
            file = self.folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(source)
        metadata = self._metadata(distribution, version)
        metadata.mkdir()
        text = f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n"
        text += f"Requires-Dist: {requires}\n" if requires else ""
        (metadata / "METADATA").write_text(text)
        (metadata / "RECORD").write_text("\n".join(modules))
        lines = [
            f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in names.items())
            for group, names in entry_points.items()
        ]
        (metadata / "entry_points.txt").write_text("\n".join(lines))

    def uninstall(self, distribution: str, version: str = "1.0") -> None:
        metadata = self._metadata(distribution, version)
        for path in (metadata / "RECORD").read_text().split():
            (self.folder / path).unlink()
        shutil.rmtree(metadata)

    def run(self, code: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run code in a fresh interpreter that sees what is installed here."""
        source = str(Path(tangrad.__file__).parents[1])
        path = os.pathsep.join([str(self.folder), source])
        return subprocess.run(
            [sys.executable, "-W", "error", "-c", code],
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "PYTHONPATH": path, **environment},
        )

    def _metadata(self, distribution: str, version: str) -> Path:
        return self.folder / f"{distribution.replace('-', '_')}-{version}.dist-info"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delenv(discovery.DISABLE_VARIABLE, raising=False)
    monkeypatch.setattr(registry, "_opened", {})
    monkeypatch.setattr(registry, "_providers", {})
    before = set(sys.modules)
    discovery.rescan()
    yield Site(folder)
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
            del sys.modules[name]
    monkeypatch.undo()
    discovery.rescan()
