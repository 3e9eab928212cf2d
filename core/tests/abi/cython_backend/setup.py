"""Build the Cython backend with the declarations that tangrad installs."""

from Cython.Build import cythonize
from setuptools import Extension, setup

from tangrad.plugin import include_directory

setup(
    name="cython-backend",
    version="0.1.0",
    ext_modules=cythonize(
        [Extension("cython_backend", ["cython_backend.pyx"], include_dirs=[include_directory()])]
    ),
)
