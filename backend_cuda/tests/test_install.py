"""pycuda is built once, from what NVIDIA's headers declare."""

from __future__ import annotations

from pathlib import Path

import pytest

from tangrad_cuda import install

HEADER = """
#define cuMemAlloc cuMemAlloc_v2
#define cuMemcpyHtoD __CUDA_API_PTDS(cuMemcpyHtoD_v2)
CUresult CUDAAPI cuInit(unsigned int Flags);
CUresult CUDAAPI cuMemAlloc(CUdeviceptr *dptr, size_t bytesize);
typedef CUresult (CUDAAPI *PFN_cuInit)(unsigned int);
"""


def test_the_stub_defines_every_form_of_a_function_that_the_headers_name(tmp_path: Path) -> None:
    (tmp_path / "cuda.h").write_text(HEADER)
    names = install.declared_functions([tmp_path / "cuda.h"])
    assert names == ["cuInit", "cuMemAlloc", "cuMemAlloc_v2", "cuMemcpyHtoD_v2"]


def test_a_wheel_that_was_built_before_is_taken(tmp_path: Path) -> None:
    kept = tmp_path / install._key("1.0", install.TOOLKITS[13]) / "pycuda-1.0-py3-none-any.whl"
    kept.parent.mkdir()
    kept.touch()
    said: list[str] = []
    assert install.build("1.0", 13, cache=tmp_path, tell=said.append) == kept
    assert said == [f"pycuda 1.0 was built before: {kept}"]


def test_wheels_for_other_headers_are_kept_apart() -> None:
    keys = {
        install._key(version, kit) for version in ("1", "2") for kit in install.TOOLKITS.values()
    }
    assert len(keys) == 4


def test_without_a_compiler_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match=r"install g\+\+"):
        install.build("1.0", 13, cache=tmp_path)


def test_the_wheel_is_left_where_it_is_wanted(tmp_path: Path) -> None:
    kept = tmp_path / "cache" / install._key("1.0", install.TOOLKITS[13]) / "pycuda-1.0.whl"
    kept.parent.mkdir(parents=True)
    kept.write_text("wheel")
    folder, cache = str(tmp_path / "dist"), str(tmp_path / "cache")
    install.main(["--wheel-dir", folder, "--cache", cache, "--pycuda", "1.0", "--cuda", "13"])
    assert (tmp_path / "dist" / "pycuda-1.0.whl").read_text() == "wheel"
