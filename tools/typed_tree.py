"""Link the sources of all packages into one folder, for mypy: `python tools/typed_tree.py`.

Several packages have modules below `tangrad`; installed, these lie in one folder, and a type
checker looks for them in one.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
TREE = ROOT / ".typed"


def main() -> None:
    """Make the folder anew."""
    from build_wheelhouse import package_folders

    shutil.rmtree(TREE, ignore_errors=True)
    for folder in package_folders():
        source = folder / "src"
        for path in sorted(source.rglob("*")):
            if path.suffix in {".py", ".pyi"} and "build" not in path.parts:
                place = TREE / path.relative_to(source)
                place.parent.mkdir(parents=True, exist_ok=True)
                place.symlink_to(path)


if __name__ == "__main__":
    main()
