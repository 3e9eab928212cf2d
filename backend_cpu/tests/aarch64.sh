#!/bin/sh
# Cross-build the core and this backend for aarch64, in place beside what is built for this machine,
# and run tests of them under qemu-user.
#
#     backend_cpu/tests/aarch64.sh ROOT [arguments of pytest]
#
# ROOT is the root of an aarch64 system with Python and its headers; ROOT/site holds the wheels that
# the tests need (docs/cpu.md tells how to make both). The `python` on the path builds; it is of the
# version in ROOT and imports the core of this checkout. Without arguments every op is compared with
# the reference device; TANGRAD_TESTS=full takes all dtypes.
set -eu
repository=$(cd "$(dirname "$0")/../.." && pwd)
root=$(cd "$1" && pwd)
shift
version=$(python -c 'import sysconfig; print(sysconfig.get_python_version())')
plugins=$root/plugins
mkdir -p "$root/target" "$root/tools" "$plugins"

cp "$root/usr/lib/python$version/_sysconfigdata__aarch64-linux-gnu.py" "$root/target"
# Tests call these compilers, and this Python.
for name in cc gcc; do
    cat > "$root/tools/$name" <<END
#!/bin/sh
exec aarch64-linux-gnu-gcc "-I$root/usr/include/python$version" -idirafter "$root/usr/include" "\$@"
END
done
cat > "$root/usr/bin/emulated" <<END
#!/bin/sh
exec qemu-aarch64 -0 "\$0" -L "$root" "$root/usr/bin/python$version" "\$@"
END
chmod +x "$root/tools/cc" "$root/tools/gcc" "$root/usr/bin/emulated"

for package in core backend_cpu; do
    (cd "$repository/$package" &&
        CC=$root/tools/cc _PYTHON_HOST_PLATFORM=linux-aarch64 \
        _PYTHON_SYSCONFIGDATA_NAME=_sysconfigdata__aarch64-linux-gnu \
        PYTHONPATH=$root/target:$repository/core/src \
        python setup.py --quiet build_ext --inplace)
done
# The entry points by which the core finds the packages.
for package in backend_cpu plugins/testing; do
    (cd "$repository/$package" &&
        python -c 'import setuptools; setuptools.setup()' --quiet egg_info --egg-base "$plugins")
done

cd "$repository"
[ $# -gt 0 ] || set -- plugins/testing/src/tangrad_testing/conformance/test_reference.py
# NumPy's matrix products for SVE set flags of exceptions that are none, which become warnings.
export OPENBLAS_CORETYPE=ARMV8
export PATH="$root/tools:$PATH" PYTHONDONTWRITEBYTECODE=1
PYTHONPATH=$repository/core/src:$repository/backend_cpu/src:$repository/plugins/testing/src
export PYTHONPATH="$PYTHONPATH:$plugins:$root/site"
exec "$root/usr/bin/emulated" -m pytest -p no:cacheprovider --tangrad-device cpu "$@"
