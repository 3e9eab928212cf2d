from setuptools import Extension, setup
from Cython.Build import cythonize
setup(name="tangrad", package_dir={"": "src"}, ext_modules=cythonize([Extension("tangrad._C", ["src/tangrad/_C.pyx", "src/tangrad/native/allocator.c", "src/tangrad/native/allocator_host.c", "src/tangrad/native/allocator_report.c"], include_dirs=["src/tangrad"], extra_compile_args=["-O1"])], include_path=["src/tangrad"]))
