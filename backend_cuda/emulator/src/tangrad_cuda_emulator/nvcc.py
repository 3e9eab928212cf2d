"""Stand in for nvcc, as far as pycuda's ``SourceModule`` calls it.

An image is the source itself behind a line that says so, which the emulator's host engine takes;
for the PTX engine NVRTC compiles it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tangrad_cuda_emulator import nvrtc
from tangrad_cuda_emulator.settings import PREFIX

IMAGES = {"--cubin": ".cubin", "--ptx": ".ptx", "--fatbin": ".fatbin"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the image of a source into the working folder, or say the version.

    Args:
        arguments: those of nvcc; the process's own by default.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if "--version" in given:
        print("nvcc: stand-in of tangrad_cuda_emulator, for the engine", _engine())
        return
    source = Path(next(text for text in given if text.endswith(".cu")))
    includes = _includes(given)
    if "--preprocess" in given:
        sys.stdout.write(_preprocessed(source, includes))
        return
    suffix = next((IMAGES[text] for text in given if text in IMAGES), None)
    if suffix is None:
        sys.exit(f"nvcc's stand-in makes images alone ({', '.join(IMAGES)}); asked for {given}")
    image = _image(source, includes)
    Path(source.stem + suffix).write_text(image, "utf-8")


def _engine() -> str:
    return os.environ.get(PREFIX + "ENGINE", "host")


def _includes(given: list[str]) -> list[str]:
    after = [given[at + 1] for at, text in enumerate(given[:-1]) if text == "-I"]
    return after + [text[2:] for text in given if text.startswith("-I") and len(text) > 2]


def _image(source: Path, includes: list[str]) -> str:
    text = _inlined(source.read_text("utf-8"), includes)
    if _engine() == "ptx":
        return nvrtc.compile_to_ptx(text)
    return f"//TANGRAD-SOURCE {source.stem}\n{text}"


def _inlined(text: str, includes: list[str], seen: frozenset[str] = frozenset()) -> str:
    """Put the files that a source includes in their place; CUDA's own are built in."""

    def content(match: re.Match[str]) -> str:
        name = match[1]
        for folder in includes:
            path = Path(folder) / name
            if path.exists() and name not in seen:
                return _inlined(path.read_text("utf-8"), includes, seen | {name})
        return ""

    return re.sub(
        r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]+)[>"].*$', content, text, flags=re.MULTILINE
    )


def _preprocessed(source: Path, includes: list[str]) -> str:
    text = _inlined(source.read_text("utf-8"), includes)
    command = ["g++", "-E", "-P", "-xc++", "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    main()
