"""Make the pictures of docs/profiling.md: screenshots of the page by a headless Chromium.

    python tools/profile_pictures.py [--keep FOLDER]

It profiles examples/slow_char_gpt.py as the text says, twice, and takes a picture of each view
that the text shows. Pages that are in FOLDER are used as they are, and new ones are left there.
Needs `chromium`, tangrad-cpu, tangrad-profiler and Pillow, which packs the pictures.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
FLAGS = (
    "--headless --no-sandbox --disable-gpu --hide-scrollbars --no-first-run "
    "--disable-background-networking --virtual-time-budget=5000"
).split()
PROGRAM = "examples/slow_char_gpt.py"
PAGES = {"slow": [PROGRAM], "encoded": [PROGRAM, "--encode-once"]}
# Picture: page, view, height.
PICTURES = {
    "advice-slow": ("slow", "Advice", 385),
    "timeline": ("slow", "Timeline", 330),
    "advice-encoded": ("encoded", "Advice", 345),
    "flames": ("encoded", "Flames", 305),
    "lines": ("encoded", "Lines", 560),
    "memory": ("encoded", "Memory", 600),
    "roofline": ("encoded", "Roofline", 560),
}
WIDTH = 1000


def write_page(path: Path, program: list[str]) -> None:
    """Profile a program by the command of the text."""
    command = [sys.executable, "-m", "tangrad", "profile", "--out", str(path), *program]
    subprocess.run(command, check=True, cwd=ROOT)


def take(browser: str, page: Path, view: str, height: int, target: Path, folder: Path) -> None:
    """Take a picture of a view of a page, in few colours."""
    shot = folder / "shot.png"
    command = [browser, *FLAGS, f"--window-size={WIDTH},{height}", f"--screenshot={shot}"]
    command += [f"--user-data-dir={folder / 'user'}", f"{page.as_uri()}#/{view}"]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    with Image.open(shot) as picture:
        picture.convert("RGB").quantize(64, dither=Image.Dither.NONE).save(target, optimize=True)


def main() -> None:
    """Make the pages, then the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path, help="folder of pages")
    keep = parser.parse_args().keep
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        parser.error("there is no chromium (Debian: apt-get install chromium)")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pages = (keep or folder).resolve()
        pages.mkdir(parents=True, exist_ok=True)
        for page, program in PAGES.items():
            if not (pages / f"{page}.html").exists():
                write_page(pages / f"{page}.html", program)
        for picture, (page, view, height) in PICTURES.items():
            target = ROOT / "docs" / "pictures" / f"profile-{picture}.png"
            take(browser, pages / f"{page}.html", view, height, target, folder)
            print(f"written: {target.relative_to(ROOT)}, {target.stat().st_size} bytes")


if __name__ == "__main__":
    main()
