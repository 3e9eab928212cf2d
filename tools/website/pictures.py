"""Take the pictures of docs/site.md from a site that was built: `python -m tools.website.pictures`.

Needs `chromium`, and Pillow, which packs the pictures.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

from tools.website.contents import ROOT

HTML = ROOT / "build" / "site" / "html"
FLAGS = (
    "--headless --no-sandbox --disable-gpu --hide-scrollbars --no-first-run "
    "--disable-background-networking --virtual-time-budget=5000"
).split()
DARK = "--blink-settings=preferredColorScheme=0"
WIDE, NARROW = 1240, 480
# Picture: page, width, height, whether it is dark.
PICTURES = {
    "start": ("index.html", WIDE, 860, False),
    "op": ("ops/softplus.html", WIDE, 1100, True),
    "class": ("api/tangrad.nn.Linear.html", NARROW, 900, False),
    "deviations": ("deviations-table.html", WIDE, 760, False),
    "benchmarks": ("benchmarks.html", WIDE, 900, True),
    "search": ("search.html?q=softmax", NARROW, 900, True),
}


def take(browser: str, page: str, size: tuple[int, int], dark: bool, target: Path) -> None:
    """Take a picture of a page, in few colours.

    Args:
        browser: the command.
        page: below the site's root.
        size: of the window.
        dark: whether the reader prefers dark.
        target: the file to write.
    """
    with tempfile.TemporaryDirectory() as folder:
        shot = Path(folder) / "shot.png"
        command = [browser, *FLAGS, f"--window-size={size[0]},{size[1]}", f"--screenshot={shot}"]
        command += [*([DARK] if dark else []), f"--user-data-dir={folder}/user"]
        subprocess.run([*command, f"{HTML.as_uri()}/{page}"], check=True, capture_output=True)
        with Image.open(shot) as picture:
            packed = picture.convert("RGB").quantize(48, dither=Image.Dither.NONE)
            packed.save(target, optimize=True)


def main() -> int:
    """Take all pictures."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        print("website.pictures: no chromium is installed", file=sys.stderr)
        return 2
    for name, (page, width, height, dark) in PICTURES.items():
        target = ROOT / "docs" / "pictures" / f"site-{name}.png"
        take(browser, page, (width, height), dark, target)
        print(f"{target.name}: {target.stat().st_size // 1024} KiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
