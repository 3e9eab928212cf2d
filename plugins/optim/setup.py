"""Write the index of the ops before the modules are collected."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

from tangrad.plugin import build_index


class BuildModules(build_py):
    """Write the index, then collect the modules."""

    def run(self) -> None:
        package = "tangrad.ops.optimizer"
        build_index(Path(__file__).parent.joinpath("src", *package.split(".")), package)
        super().run()


setup(cmdclass={"build_py": BuildModules})
