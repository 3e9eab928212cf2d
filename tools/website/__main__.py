"""Build the site: `python -m tools.website`; `--open` shows it.

Whatever is wrong (a broken reference, an example that fails, a public name without a page, a link
or an anchor that leads nowhere) is told, and the command fails.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
import webbrowser
from pathlib import Path

from tools.website import links, pages
from tools.website.contents import ROOT

SETTINGS = Path(__file__).parent


def main(arguments: list[str] | None = None) -> int:
    """Build all pages and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.website", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "site", help="the folder")
    parser.add_argument("--open", action="store_true", help="show the first page in a browser")
    parser.add_argument("--jobs", default="auto", help="processes of the generator")
    chosen = parser.parse_args(arguments)
    started = time.monotonic()
    source, html = chosen.out / "source", chosen.out / "html"
    site = pages.write(source)
    print(f"{len(site.written):,} pages written, {time.monotonic() - started:.0f} s", flush=True)
    status = run_generator(source, html, chosen.jobs)
    wrong = list(site.wrong)
    if status:
        wrong.append("the generator warned; see above")
    shutil.copyfile(source / "names.json", html / "names.json")
    wrong += [f"broken link: {line}" for line in links.broken(html)]
    for line in wrong:
        print(line, file=sys.stderr)
    print(f"{time.monotonic() - started:.0f} s; {html / 'index.html'}", flush=True)
    if chosen.open:
        webbrowser.open((html / "index.html").as_uri())
    return 1 if wrong else 0


def run_generator(source: Path, html: Path, jobs: str) -> int:
    """Run Sphinx with warnings as errors and return its exit status."""
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-c", str(SETTINGS), "-q"]
    command += ["--fail-on-warning", "--keep-going", "-j", jobs]
    command += ["-d", str(html.parent / "doctrees"), str(source), str(html)]
    return subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}).returncode


if __name__ == "__main__":
    sys.exit(main())
