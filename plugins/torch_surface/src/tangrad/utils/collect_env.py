"""What a report of a problem should tell of the machine: `python -m tangrad.utils.collect_env`."""

from __future__ import annotations

import os
import platform
import sys

import tangrad

__all__ = ["get_pretty_env_info", "main"]


def get_pretty_env_info() -> str:
    """Return versions, the machine and the threads as text; nothing is run to find them."""
    import numpy

    found = {
        "tangrad version": tangrad.__version__,
        "Python version": sys.version.replace("\n", " "),
        "Python platform": platform.platform(),
        "NumPy version": numpy.__version__,
        "libc version": "-".join(platform.libc_ver()),
        "CPU": f"{platform.processor() or platform.machine()}, {os.cpu_count()} processors",
        "Number of threads": str(tangrad.get_num_threads()),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "not set"),
        "CUDA available": str(tangrad.cuda.is_available()),
    }
    return "\n".join(f"{name}: {value}" for name, value in found.items())


def main() -> None:
    """Print it."""
    print(get_pretty_env_info())


if __name__ == "__main__":
    main()
