"""Names of plugins' ops: their own namespaces, built-in names, two plugins, a later core."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import tangrad
from tangrad.plugin import find_op, pointwise, register_kernel

MODULE = """
from tangrad.plugin import hookimpl, pointwise
API = 1
@hookimpl
def tangrad_register_ops():
{definitions}
"""


def install(site, package, *schemas):
    lines = [f"pointwise({schema + ' -> Tensor'!r}, 'x * {len(package)}')" for schema in schemas]
    definitions = textwrap.indent("\n".join(lines), "    ")
    site.install(
        f"dist-{package}",
        {"tangrad.plugins": {package: package}},
        {f"{package}.py": MODULE.format(definitions=definitions)},
    )


def output(site, code):
    done = site.run(textwrap.dedent(code))
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_an_op_of_a_package_is_called_by_package_and_name(site):
    install(site, "fizzes", "fizzes::sigmoid(Tensor x)", "fizzes::twice(Tensor x)")
    assert output(
        site,
        """
        import tangrad
        from tangrad.plugin import find_op
        x = tangrad.ones(2, requires_grad=True)
        y = tangrad.ops.fizzes.sigmoid(x)
        y.sum().backward()
        assert find_op("fizzes::twice") is tangrad.ops.fizzes.twice
        assert not hasattr(tangrad, "fizzes::sigmoid") and not hasattr(tangrad.ops.fizzes, "other")
        per_sample = tangrad.func.vmap(tangrad.func.grad(tangrad.ops.fizzes.sigmoid))(x.detach())
        print(y[0].item(), x.grad[0].item(), y.grad_fn.name(), per_sample[1].item())
        print(tangrad.sigmoid(tangrad.zeros(1)).item())
        """,
    ) == ["6.0", "6.0", "SigmoidBackward0", "6.0", "0.5"]


def test_the_command_line_tells_of_it(site):
    install(site, "fizzes", "fizzes::twice(Tensor x)")
    code = "import sys; from tangrad.cli import main; sys.exit(main(['op', 'fizzes::twice']))"
    done = site.run(code)
    assert "forms        tangrad.ops.fizzes.twice\n" in done.stdout, done.stderr
    assert "fizzes__twice(" in done.stdout


def test_a_built_in_name_is_a_failure_of_the_plugin_and_the_core_goes_on(site):
    install(site, "fizzes", "sigmoid(Tensor x)", "fresh(Tensor x)")
    name, fresh, mine, *failure = output(
        site,
        """
        import tangrad
        from tangrad.discovery import discovery
        x = tangrad.ones(1)
        fresh = tangrad.fresh(x).item()
        print(round(tangrad.sigmoid(x).item(), 3), fresh, tangrad.ops.fizzes.sigmoid(x).item())
        [failure] = discovery.failures()
        print(failure.stage, failure.cause, failure.remedy)
        """,
    )
    assert (name, fresh, mine) == ("0.731", "6.0", "6.0")
    told = " ".join(failure)
    for part in ("op 'sigmoid'", "built in, by tangrad.ops.pointwise.", "fizzes (dist-fizzes)"):
        assert part in told
    assert "'fizzes::sigmoid'" in told


def test_a_program_that_takes_a_built_in_name_is_told_at_once():
    with pytest.raises(ValueError, match=r"op 'softmax' is built in.*'\w+::softmax'"):
        pointwise("softmax(Tensor x) -> Tensor", "x")
    assert tangrad.softmax(tangrad.zeros(2), 0).tolist() == [0.5, 0.5]


@pytest.mark.parametrize("name", ["aten::f", "add::f", "a b::f", "a::", "a::b::c"])
def test_a_namespace_that_cannot_be_is_refused(name):
    with pytest.raises(ValueError, match=r"is no (name of an op|schema)|is a name of tang"):
        pointwise(f"{name}(Tensor x) -> Tensor", "x")


def test_two_plugins_with_one_name_are_both_named(site):
    install(site, "fizzes", "shared(Tensor x)")
    install(site, "buzzes", "shared(Tensor x)", "buzzes::shared(Tensor x)")
    told = " ".join(
        output(
            site,
            """
            import tangrad
            from tangrad.discovery import discovery
            print(tangrad.shared(tangrad.ones(1)).item(), *discovery.failures())
            """,
        )
    )
    assert told.startswith("6.0 ")
    assert "dist-fizzes" in told
    assert "buzzes (dist-buzzes)" in told
    assert "defined twice" in told


def later_core(folder: Path) -> Path:
    """Build a core with one more op than this one: the same files, and a new index."""
    source = Path(tangrad.__file__).parent
    shutil.copytree(source, folder / "tangrad", ignore=shutil.ignore_patterns("__pycache__", "*.c"))
    ops = folder / "tangrad" / "ops"
    with open(ops / "hashing.py", "a") as family:
        family.write(
            "\n\nfrom tangrad.ops.definition.define import pointwise\n"
            "fresh = pointwise('fresh(Tensor self) -> Tensor', 'self + 100')\n"
        )
    with open(ops / "_index.py", "a") as index:
        index.write("\nINDEX['fresh'] = 'hashing'\n")
    return folder


@pytest.mark.parametrize("schema", ["fresh(Tensor x)", "fizzes::fresh(Tensor x)"])
def test_a_later_core_with_an_op_of_that_name_does_not_break_a_plugin(site, tmp_path, schema):
    install(site, "fizzes", schema, "fizzes::other(Tensor x)")
    code = """
        import tangrad
        x = tangrad.ones(1)
        print(tangrad.ops.fizzes.other(x).item())
        print(tangrad.ops.fizzes.fresh(x).item() if hasattr(tangrad.ops.fizzes, "fresh") else 0)
        print(tangrad.fresh(x).item() if hasattr(tangrad, "fresh") else 0)
    """
    plain = "::" not in schema
    assert output(site, code) == ["6.0", *(("0", "6.0") if plain else ("6.0", "0"))]
    path = os.pathsep.join([str(site.folder), str(later_core(tmp_path / "later"))])
    command = [sys.executable, "-c", textwrap.dedent(code)]
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert done.stdout.split() == ["6.0", "6.0", "101.0"], done.stderr


def test_a_kernel_is_registered_by_package_and_name():
    made = pointwise("test_op_names::halved(Tensor x) -> Tensor", "x / 2")
    register_kernel("test_op_names::halved", lambda out, x: None, device="reference")
    assert find_op("test_op_names::halved") is made


@pytest.mark.parametrize("use", ["tangrad.swoosh", "tangrad.ones(1).swoosh", "tangrad.ops.swoosh"])
def test_an_op_whose_package_failed_names_it_and_the_mistake(site, use):
    source = MODULE.format(
        definitions="    pointwise('swoosh(Tensor x) -> Tensor', 'x * sigmod(x)')"
    )
    site.install("acme-swoosh", {"tangrad.plugins": {"swoosh": "acme_op"}}, {"acme_op.py": source})
    done = site.run(f"import tangrad\n{use}")
    last = done.stderr.splitlines()[-1]
    assert last.startswith("AttributeError")
    assert "swoosh" in last
    assert "; acme-swoosh 1.0 failed at hook tangrad_register_ops: ValueError: " in last
    assert "unknown function 'sigmod'; did you mean 'sigmoid'?" in last
