"""Random programs of the script language: `python random_scripts.py COUNT [FIRST SEED]`.

Each is written to a file, and run as Python, scripted, and saved and loaded; where PyTorch is
there, it runs the same text as a script, and reads our archive.
"""

from __future__ import annotations

import copy
import importlib.util
import io
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import tangrad

HEAD = """from typing import Dict, List, Optional, Tuple

import scripted_side as torch


"""


class Writer:
    """Write one program."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.lines: list[str] = []
        self.count = 0
        self.depth = 0
        self.loops = 0

    def pick(self, *choices: Any) -> Any:
        return self.rng.choice(choices)

    def name(self, scope: dict[str, str], kind: str) -> str | None:
        names = [name for name, known in scope.items() if known == kind]
        return self.rng.choice(names) if names else None

    # --- expressions of a type

    def expr(self, scope: dict[str, str], kind: str, depth: int = 0) -> str:
        known = self.name(scope, kind)
        if depth > 2 or self.rng.random() < 0.25:
            return known or self.leaf(kind)
        return getattr(self, f"make_{kind}")(scope, depth + 1)

    def leaf(self, kind: str) -> str:
        return {
            "int": str(self.pick(0, 1, 2, 3, 7, -1, -5, 2**31, 2**62)),
            "float": str(self.pick(0.0, 1.0, -2.5, 0.5, 1e10, 3.25)),
            "bool": str(self.pick(True, False)),
            "str": repr(self.pick("", "a", "bc", "x y")),
            "ints": self.pick("[1, 2, 3]", "[0]", "[5, -4]"),
            "dict": self.pick("{'a': 1}", "{'b': 2, 'c': -3}"),
            "tensor": self.pick("torch.ones(2)", "torch.zeros(2)", "torch.full([2], 3.0)"),
            "maybe": "torch.jit.annotate(Optional[int], None)",
        }[kind]

    def make_int(self, scope: dict[str, str], d: int) -> str:
        e = lambda kind: self.expr(scope, kind, d)  # noqa: E731
        return self.pick(
            f"({e('int')} {self.pick('+', '-', '*', '&', '|', '^')} {e('int')})",
            f"({e('int')} // {self.pick(2, 3, -7)})",
            f"({e('int')} % {self.pick(2, 5, -3)})",
            f"(-{e('int')})",
            f"abs({e('int')} % 1000)",
            f"len({e(self.pick('ints', 'str', 'dict'))})",
            f"({e('int')} if {e('bool')} else {e('int')})",
            f"min({e('int')}, {e('int')})",
            f"max({e('int')}, {e('int')})",
            f"int({e('bool')})",
            f"sum([x % 1000 for x in {e('ints')}])",
        )

    def make_float(self, scope: dict[str, str], d: int) -> str:
        e = lambda kind: self.expr(scope, kind, d)  # noqa: E731
        return self.pick(
            f"({e('float')} {self.pick('+', '-', '*')} {e('float')})",
            f"({e('float')} / {self.pick(2.0, -4.0, 0.5)})",
            f"float({e('int')} % 1000)",
            f"(-{e('float')})",
            f"abs({e('float')})",
            f"({e('float')} if {e('bool')} else {e('float')})",
        )

    def make_bool(self, scope: dict[str, str], d: int) -> str:
        e = lambda kind: self.expr(scope, kind, d)  # noqa: E731
        kind = self.pick("int", "float", "str")
        return self.pick(
            f"({e(kind)} {self.pick('<', '<=', '>', '>=', '==', '!=')} {e(kind)})",
            f"({e('bool')} {self.pick('and', 'or')} {e('bool')})",
            f"(not {e('bool')})",
            f"({e('int')} in {e('ints')})",
            f"({e('str')} in {e('dict')})",
            f"({e('maybe')} is None)",
        )

    def make_str(self, scope: dict[str, str], d: int) -> str:
        e = lambda kind: self.expr(scope, kind, d)  # noqa: E731
        return self.pick(
            f"({e('str')} + {e('str')})",
            f"str({e('int')})",
            f"{e('str')}.upper()",
            f"{e('str')}.replace('a', 'bb')",
            f"{e('str')}[:2]",
            f"'-'.join([{e('str')}, {e('str')}])",
        )

    def make_ints(self, scope: dict[str, str], d: int) -> str:
        e = lambda kind: self.expr(scope, kind, d)  # noqa: E731
        return self.pick(
            f"[{e('int')}, {e('int')}]",
            f"({e('ints')} + {e('ints')})",
            f"[x + {self.pick(1, 2)} for x in {e('ints')}]",
            f"{e('ints')}[{self.pick('1:', ':2', '::2')}]",
            f"list({e('dict')}.values())",
            f"sorted({e('ints')})",
        )

    def make_dict(self, scope: dict[str, str], d: int) -> str:
        e = lambda kind: self.expr(scope, kind, d)  # noqa: E731
        return self.pick(
            f"{{{e('str')}: {e('int')}}}",
            f"{{k: v + 1 for k, v in {e('dict')}.items()}}",
        )

    def make_tensor(self, scope: dict[str, str], d: int) -> str:
        e = lambda kind: self.expr(scope, kind, d)  # noqa: E731
        return self.pick(
            f"({e('tensor')} {self.pick('+', '-', '*')} {e('tensor')})",
            f"({e('tensor')} + {e('float')})",
            f"torch.relu({e('tensor')})",
            f"{e('tensor')}.abs().clamp(0.0, 5.0)",
            f"torch.where({e('tensor')} > 0, {e('tensor')}, {e('tensor')})",
        )

    def make_maybe(self, scope: dict[str, str], d: int) -> str:
        return self.pick(
            "torch.jit.annotate(Optional[int], None)",
            f"torch.jit.annotate(Optional[int], {self.expr(scope, 'int', d)})",
        )

    # --- statements

    def line(self, text: str) -> None:
        self.lines.append("    " * (self.depth + 1) + text)

    def body(self, scope: dict[str, str], length: int) -> None:
        before = len(self.lines)
        for _ in range(length):
            self.statement(scope)
        if len(self.lines) == before:
            self.line("pass")

    def statement(self, scope: dict[str, str]) -> None:
        kinds = ["new"] * 4 + ["set"] * 3 + ["change"] * 2
        if self.depth < 3:
            kinds += ["if", "for", "while", "refine", "leave"]
        getattr(self, f"do_{self.rng.choice(kinds)}")(scope)

    def do_new(self, scope: dict[str, str]) -> None:
        kind = self.pick("int", "float", "bool", "str", "ints", "dict", "tensor", "maybe")
        value = self.expr(scope, kind)
        self.count += 1
        self.line(f"v{self.count} = {value}")
        scope[f"v{self.count}"] = kind

    def do_set(self, scope: dict[str, str]) -> None:
        kind = self.pick("int", "float", "bool", "str", "ints", "tensor", "maybe")
        name = self.name(scope, kind)
        if name is not None and not name.startswith("i"):
            self.line(f"{name} = {self.expr(scope, kind)}")

    def do_change(self, scope: dict[str, str]) -> None:
        xs, d = self.name(scope, "ints"), self.name(scope, "dict")
        text = self.pick(
            f"{xs}.append({self.expr(scope, 'int')})",
            f"{xs}.reverse()",
            f"{xs}.insert(0, {self.expr(scope, 'int')})",
            f"{d}[{self.expr(scope, 'str')}] = {self.expr(scope, 'int')}",
        )
        if "None" not in text.split(".")[0] and not text.startswith("None"):
            self.line(text)

    def do_if(self, scope: dict[str, str]) -> None:
        self.line(f"if {self.expr(scope, 'bool')}:")
        self.depth += 1
        self.body(dict(scope), self.rng.randint(1, 3))
        self.depth -= 1
        if self.rng.random() < 0.5:
            self.line("else:")
            self.depth += 1
            self.body(dict(scope), self.rng.randint(1, 3))
            self.depth -= 1

    def do_for(self, scope: dict[str, str]) -> None:
        self.count += 1
        name, inner = f"i{self.count}", dict(scope)
        over = self.pick("range(3)", f"range(abs({self.expr(scope, 'int')}) % 4)", "[4, 5]", "'ab'")
        inner[name] = "str" if over == "'ab'" else "int"
        self.line(f"for {name} in {over}:")
        self.loop(inner)

    def do_while(self, scope: dict[str, str]) -> None:
        self.count += 1
        name = f"i{self.count}"
        self.line(f"{name} = {self.pick(0, 1, 3)}")
        self.line(f"while {name} > 0:")
        self.depth += 1
        self.line(f"{name} -= 1")
        self.depth -= 1
        self.loop({**scope, name: "int"})

    def loop(self, scope: dict[str, str]) -> None:
        self.depth += 1
        self.loops += 1
        self.body(scope, self.rng.randint(1, 3))
        if self.rng.random() < 0.3:
            self.line(f"if {self.expr(scope, 'bool')}:")
            self.depth += 1
            self.line(self.pick("break", "continue"))
            self.depth -= 1
        self.loops -= 1
        self.depth -= 1

    def do_refine(self, scope: dict[str, str]) -> None:
        name = self.name(scope, "maybe")
        if name is None:
            return
        self.line(f"if {name} is not None:")
        self.depth += 1
        self.body({k: v for k, v in scope.items() if k != name}, 1)
        self.line(f"a = {name}")
        self.depth -= 1

    def do_leave(self, scope: dict[str, str]) -> None:
        self.line(f"if {self.expr(scope, 'bool')} and {self.expr(scope, 'bool')}:")
        self.depth += 1
        if self.rng.random() < 0.3:
            self.line(f"raise ValueError('left ' + {self.expr(scope, 'str')})")
        else:
            self.line(f"return {self.result(scope)}")
        self.depth -= 1

    def result(self, scope: dict[str, str]) -> str:
        return (
            f"({self.expr(scope, 'int')}, {self.expr(scope, 'float')}, {self.expr(scope, 'str')}, "
            f"{self.expr(scope, 'ints')}, {self.expr(scope, 'dict')}, {self.expr(scope, 'tensor')})"
        )

    def program(self) -> str:
        scope = {
            "a": "int",
            "b": "float",
            "c": "str",
            "xs": "ints",
            "d": "dict",
            "t": "tensor",
            "o": "maybe",
        }
        self.body(scope, self.rng.randint(3, 9))
        self.line(f"return {self.result(scope)}")
        head = (
            "def f(a: int, b: float, c: str, xs: List[int], d: Dict[str, int], t: torch.Tensor, "
            "o: Optional[int]) -> Tuple[int, float, str, List[int], Dict[str, int], torch.Tensor]:"
        )
        return HEAD + head + "\n" + "\n".join(self.lines) + "\n"


def load(side: Any, path: Path, name: str) -> Any:
    """Return the function of a program for a side."""
    sys.modules["scripted_side"] = side
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module.f


def arguments(side: Any) -> list[tuple[Any, ...]]:
    """Return the arguments of the calls."""
    return [
        (3, 0.5, "ab", [1, 2, 3], {"a": 1}, side.tensor([1.0, -2.0]), None),
        (-7, -1.5, "", [9, 8], {"b": 2, "q": 0}, side.tensor([0.0, 4.0]), 5),
    ]


def plain(value: Any) -> Any:
    """Return a value without what tells the sides apart; NaN equals itself."""
    if hasattr(value, "detach"):
        return "tensor", plain(value.detach().tolist())
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    # PyTorch pools constants that are equal, and so takes -0.0 for 0.0 where both stand.
    return repr(abs(value) if isinstance(value, float) and value == 0 else value)


def outcomes(function: Any, side: Any) -> list[Any]:
    """Return what the calls give; of errors, that there is one."""
    found = []
    for args in arguments(side):
        try:
            found.append(plain(function(*copy.deepcopy(args))))
        except Exception:
            found.append("error")
    return found


def check(seed: int, folder: Path, oracle: Any = None) -> str:
    """Return what differs in a program, or "".

    Args:
        seed: of the program.
        folder: for its file.
        oracle: PyTorch, or None.
    """
    path = folder / f"script_{seed}.py"
    path.write_text(Writer(seed).program())
    ours = load(tangrad, path, f"random_script_{seed}")
    try:
        scripted = tangrad.jit.script(ours)
    except RuntimeError as error:
        return _refused_by_both(seed, path, oracle, error)
    found = outcomes(scripted, tangrad)
    file = io.BytesIO()
    scripted.save(file)
    again = outcomes(tangrad.jit.load(file), tangrad)
    if again != found:
        return f"{seed}: saved and loaded: {again} != {found}"
    if oracle is None:
        return ""
    wanted = outcomes(oracle.jit.script(load(oracle, path, f"random_oracle_{seed}")), oracle)
    if wanted != found:
        return f"{seed}: PyTorch: {wanted} != {found}"
    theirs = outcomes(oracle.jit.load(io.BytesIO(file.getvalue())), oracle)
    return "" if theirs == found else f"{seed}: PyTorch, from our archive: {theirs} != {found}"


def _refused_by_both(seed: int, path: Path, oracle: Any, error: Exception) -> str:
    """Return what differs where a program is refused: that PyTorch takes it."""
    if oracle is not None:
        try:
            oracle.jit.script(load(oracle, path, f"random_oracle_{seed}"))
        except RuntimeError:
            return ""
    return f"{seed}: refused: {error}"


def main() -> None:
    import torch

    count = int(sys.argv[1])
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, first + count):
            try:
                said = check(seed, Path(folder), torch)
            except Exception as error:
                said = f"{seed}: {type(error).__name__}: {error}"
            if said:
                failed += 1
                print(said[:1500], flush=True)
    print(f"{count} programs, {failed} differ")


if __name__ == "__main__":
    main()
