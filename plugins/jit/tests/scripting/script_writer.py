"""Write random programs of the script language."""

from __future__ import annotations

import random
import re
from typing import Any

HEAD = """from typing import Dict, List, Optional, Tuple

import math

import scripted_side as torch


def helper(xs: List[int], n: int) -> int:
    total = 0
    for k in range(abs(n) % 6):
        for x in xs:
            if x > n:
                return total - x
            if x == 0:
                raise ValueError("zero")
            total += n // x + xs[k]
    return total


def searched(grid: List[List[int]], n: int) -> int:
    k = 0
    while k < 40:
        for row in grid:
            for x in row:
                if x >= n or k > 5:
                    return k
                k += 1
        k += 3
    return -1


def paired(a: int, b: float) -> Tuple[int, float]:
    while a > 10:
        a = a // 2
        if a == 13:
            return a, b
    return -a, b / (a - 3)


def doubled(xs: List[int]) -> List[int]:
    made = xs if len(xs) > 1 else [n for n in xs]
    for k in range(len(made)):
        made[k] = made[k] * 2
    return made


def changed(xs: List[int], n: int) -> None:
    for k in range(len(xs)):
        if n % 3 == 0 and len(xs) < 20:
            xs.append(k)
        elif n % 3 == 1:
            xs[k] -= n


"""


ALL = (
    *("int", "float", "bool", "str", "ints", "dict", "tensor", "maybe"),
    *("floats", "grid", "table", "pair"),
)


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

    def chosen(self, scope: dict[str, str], depth: int, *templates: str) -> str:
        """Return one of some templates, with an expression of its type for each `<type>`.

        One that begins with `!` fails often, and so is taken seldom.
        """
        risky = self.rng.random() < 0.1
        template = self.rng.choice([t for t in templates if risky or t[0] != "!"])
        return re.sub(r"<([a-z]+)>", lambda m: self.expr(scope, m[1], depth), template.lstrip("!"))

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
            "floats": self.pick("[0.5, -1.5]", "[2.0]"),
            "grid": self.pick("[[1, 2], [3]]", "[[0]]"),
            "table": self.pick("{1: [2, 3]}", "{0: [1], 5: [6, 7]}"),
            "pair": self.pick("(1, 2.5)", "(-3, 0.0)"),
        }[kind]

    def make_int(self, scope: dict[str, str], d: int) -> str:
        return self.chosen(
            scope,
            d,
            f"(<int> {self.pick('+', '-', '*', '&', '|', '^')} <int>)",
            f"(<int> // {self.pick(2, 3, -7)})",
            f"(<int> % {self.pick(2, 5, -3)})",
            "(-<int>)",
            "abs(<int> % 1000)",
            f"len(<{self.pick('ints', 'str', 'dict')}>)",
            "(<int> if <bool> else <int>)",
            "min(<int>, <int>)",
            "max(<int>, <int>)",
            "int(<bool>)",
            "sum([x % 1000 for x in <ints>])",
            "!(<int> // <int>)",
            "!(<int> % (<int> % 5))",
            "(<int> << (<int> % 70))",
            "(<int> >> (<int> % 70))",
            "!<ints>[<int> % 4]",
            f"<ints>[{self.pick(-1, 0)}]",
            f"!<grid>[<int> % 3][{self.pick(-1, 0)}]",
            "!<dict>[<str>]",
            "<dict>.get(<str>, <int>)",
            "!<table>[<int> % 3][0]",
            "<pair>[0]",
            "int(<float>)",
            "!min(<ints>)",
            "<ints>.count(<int>)",
            "!<ints>.index(<int>)",
            f"len(<{self.pick('grid', 'table', 'floats')}>)",
            "!helper(<ints>, <int>)",
            "searched(<grid>, <int>)",
            "int(<maybe> is None)",
            f"(<int> // max({self.pick(1, 2)}, <int>))",
            f"(<int> % max({self.pick(1, 5)}, <int>))",
            f"(<ints> + [{self.pick(1, 4)}])[{self.pick(0, -1)}]",
        )

    def make_float(self, scope: dict[str, str], d: int) -> str:
        return self.chosen(
            scope,
            d,
            f"(<float> {self.pick('+', '-', '*')} <float>)",
            f"(<float> / {self.pick(2.0, -4.0, 0.5)})",
            f"(<float> {self.pick('+', '-', '*', '/')} <int>)",
            f"(<int> {self.pick('+', '-', '*', '/')} <float>)",
            "(<int> / <int>)",
            f"(<float> // {self.pick(2.0, -3.0)})",
            f"(<float> % {self.pick(2.0, -3.0)})",
            f"<floats>[{self.pick(-1, 0)}]",
            "sum(<floats>)",
            "<pair>[1]",
            "min(<float>, <float>)",
            "max(<int>, <float>)",
            "math.floor(<float>) * 0.5",
            "math.sqrt(abs(<float>))",
            "float(<tensor>[0])",
            "float(<int> % 1000)",
            "(-<float>)",
            "abs(<float>)",
            "(<float> if <bool> else <float>)",
        )

    def make_bool(self, scope: dict[str, str], d: int) -> str:
        kind = self.pick("int", "float", "str")
        return self.chosen(
            scope,
            d,
            f"(<{kind}> {self.pick('<', '<=', '>', '>=', '==', '!=')} <{kind}>)",
            f"(<bool> {self.pick('and', 'or')} <bool>)",
            "(not <bool>)",
            "(<int> in <ints>)",
            "(<str> in <dict>)",
            "(<maybe> is None)",
            f"(<int> {self.pick('<', '<=', '>', '>=', '==', '!=')} <float>)",
            "(<ints> == <ints>)",
            "(<int> in <table>)",
            "any([x > 1 for x in <ints>])",
            "bool(<tensor>.sum() > <float>)",
        )

    def make_floats(self, scope: dict[str, str], d: int) -> str:
        return self.chosen(
            scope,
            d,
            "[<float>, <float>]",
            "[float(x % 100) for x in <ints>]",
            "(<floats> + <floats>)",
            "sorted(<floats>)",
            "(<floats> * 2)",
        )

    def make_grid(self, scope: dict[str, str], d: int) -> str:
        return self.chosen(
            scope,
            d,
            "[<ints>, <ints>]",
            "[[x, <int>] for x in <ints>]",
            "(<grid> + [<ints>])",
            "<grid>[:1]",
            "list(<table>.values())",
        )

    def make_table(self, scope: dict[str, str], d: int) -> str:
        return self.chosen(
            scope,
            d,
            "{<int>: <ints>}",
            "{x % 7: [x] for x in <ints>}",
        )

    def make_pair(self, scope: dict[str, str], d: int) -> str:
        return self.chosen(scope, d, "(<int>, <float>)", "paired(<int>, <float>)")

    def make_str(self, scope: dict[str, str], d: int) -> str:
        return self.chosen(
            scope,
            d,
            "(<str> + <str>)",
            "str(<int>)",
            "<str>.upper()",
            "<str>.replace('a', 'bb')",
            "<str>[:2]",
            "'-'.join([<str>, <str>])",
            f"<str>[{self.pick(0, -1)}]",
            "str(<ints>)",
        )

    def make_ints(self, scope: dict[str, str], d: int) -> str:
        return self.chosen(
            scope,
            d,
            "[<int>, <int>]",
            "(<ints> + <ints>)",
            f"[x + {self.pick(1, 2)} for x in <ints>]",
            f"<ints>[{self.pick('1:', ':2', '::2')}]",
            "list(<dict>.values())",
            "sorted(<ints>)",
            f"<grid>[{self.pick(-1, 0)}]",
            "!<table>[<int> % 3]",
            "(<ints> * 2)",
            "list(<table>.keys())",
            "[i * x for i, x in enumerate(<ints>)]",
            "[x - y for x, y in zip(<ints>, <ints>)]",
            f"[x for x in range({self.pick(0, 5, -2)}, {self.pick(3, 9)}, {self.pick(1, 2, 3)})]",
        )

    def make_dict(self, scope: dict[str, str], d: int) -> str:
        return self.chosen(
            scope,
            d,
            "{<str>: <int>}",
            "{k: v + 1 for k, v in <dict>.items()}",
        )

    def make_tensor(self, scope: dict[str, str], d: int) -> str:
        return self.chosen(
            scope,
            d,
            f"(<tensor> {self.pick('+', '-', '*')} <tensor>)",
            "(<tensor> + <float>)",
            "torch.relu(<tensor>)",
            "<tensor>.abs().clamp(0.0, 5.0)",
            "torch.where(<tensor> > 0, <tensor>, <tensor>)",
        )

    def make_maybe(self, scope: dict[str, str], d: int) -> str:
        return self.chosen(
            scope,
            d,
            "torch.jit.annotate(Optional[int], None)",
            "torch.jit.annotate(Optional[int], <int>)",
            "<dict>.get(<str>)",
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
            kinds += ["if", "for", "while", "refine", "leave", "pairs", "alias"]
        getattr(self, f"do_{self.rng.choice(kinds)}")(scope)

    def do_new(self, scope: dict[str, str]) -> None:
        kind = self.pick(*ALL)
        value = self.expr(scope, kind)
        self.count += 1
        self.line(f"v{self.count} = {value}")
        scope[f"v{self.count}"] = kind

    def do_set(self, scope: dict[str, str]) -> None:
        kind = self.pick(*ALL)
        name = self.name(scope, kind)
        if name is not None and not name.startswith("i"):
            # What loops make longer and longer is cut.
            cut = {"ints": "[:6]", "floats": "[:6]", "grid": "[:4]", "str": "[:8]"}.get(kind, "")
            self.line(f"{name} = {self.expr(scope, kind)}{cut}")

    def do_change(self, scope: dict[str, str]) -> None:
        xs, d = self.name(scope, "ints"), self.name(scope, "dict")
        grid, table = self.name(scope, "grid"), self.name(scope, "table")
        text = self.chosen(
            scope,
            0,
            f"{xs}.append(<int>)",
            f"{xs}.reverse()",
            f"{xs}.insert({self.pick(0, 1, -1, 9)}, <int>)",
            f"!{xs}.pop({self.pick(0, -1, 1)})",
            f"{xs}.sort()",
            f"{xs}.extend(<ints>[:3])",
            f"!{xs}.remove(<int>)",
            f"{xs} += <ints>[:3]",
            f"{xs}[{self.pick(0, -1)}] = <int>",
            f"{xs}[{self.pick(0, -1)}] += <int>",
            f"!del {xs}[{self.pick(0, -1)}]",
            f"{d}[<str>] = <int>",
            f"{d}.pop(<str>, 1)",
            f"{d}.update(<dict>)",
            f"{grid}.append(<ints>)",
            f"{grid}[{self.pick(0, -1)}].append(<int>)",
            f"{grid}[0][{self.pick(0, -1)}] = <int>",
            f"{table}[<int> % 3] = <ints>",
            f"!{table}[<int> % 3].append(<int>)",
            f"changed({xs}, <int>)",
            f"{xs} = doubled(<ints>)",
        )
        if not text.startswith(("None", "changed(None", "del None")):
            self.line(text)

    def do_alias(self, scope: dict[str, str]) -> None:
        """Let two names mean one list, or a list and an element of another."""
        self.count += 1
        name = f"v{self.count}"
        grid, xs = self.name(scope, "grid"), self.name(scope, "ints")
        self.line(f"{name} = {self.pick(xs, xs, f'{grid}[0]' if grid else xs)}")
        scope[name] = "ints"
        self.line(f"{name}.append({self.expr(scope, 'int')})")

    def do_pairs(self, scope: dict[str, str]) -> None:
        self.count += 1
        name, inner = f"i{self.count}", dict(scope)
        over, first, kind = self.pick(
            (f"enumerate({self.expr(scope, 'ints')})", "int", "int"),
            (f"zip({self.expr(scope, 'ints')}, {self.expr(scope, 'floats')})", "int", "float"),
            (f"{self.expr(scope, 'dict')}.items()", "str", "int"),
            (f"enumerate({self.expr(scope, 'str')}, {self.pick(1, 4)})", "int", "str"),
        )
        inner[f"{name}a"], inner[f"{name}b"] = first, kind
        self.line(f"for {name}a, {name}b in {over}:")
        self.loop(inner)

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
