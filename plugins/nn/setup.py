"""Write the index of the ops, compile what every call of a module passes through, write stubs."""

from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

from tangrad.plugin import build_index
from tangrad.plugin.stubs import describe_wheel

OPS = "tangrad.ops.nn"


class BuildModules(build_py):
    """Write the index, then collect the modules."""

    def run(self) -> None:
        build_index(Path(__file__).parent.joinpath("src", *OPS.split(".")), OPS)
        super().run()


class BuildExtensions(build_ext):
    """Compile, then let the package that a wheel is made of describe itself in stubs."""

    def run(self) -> None:
        super().run()
        built = Path(self.build_lib).resolve()
        if self.inplace or not (built / "tangrad" / "nn" / "__init__.py").exists():
            return
        told = self.distribution
        describe_wheel(built, told.get_name(), told.entry_points, ["tangrad.nn.functional"])


setup(
    ext_modules=cythonize(
        [
            Extension(
                "tangrad.nn._module",
                ["src/tangrad/nn/_module.pyx"],
                # As the core's own: no exception passes through C, calls inside are direct.
                extra_compile_args=[
                    "-O2",
                    "-fvisibility=hidden",
                    "-fno-semantic-interposition",
                    "-fno-plt",
                    "-g0",
                    "-fno-asynchronous-unwind-tables",
                    "-fno-unwind-tables",
                    "-pthread",
                ],
                extra_link_args=["-pthread", "-Wl,--strip-all", "-Wl,-z,noseparate-code"],
            )
        ],
        include_path=["src"],
        compiler_directives={"language_level": 3},
    ),
    cmdclass={"build_py": BuildModules, "build_ext": BuildExtensions},
)
