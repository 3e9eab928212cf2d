"""Write stubs of the modules that stand elsewhere than where PyTorch shows them."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

from tangrad.plugin.stubs import describe_wheel


class BuildModules(build_py):
    """Collect the modules, then let them describe themselves."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        built, told = Path(self.build_lib).resolve(), self.distribution
        modules = ["tangrad._utils", "tangrad.functional"]
        describe_wheel(built, told.get_name(), told.entry_points, modules)


setup(cmdclass={"build_py": BuildModules})
