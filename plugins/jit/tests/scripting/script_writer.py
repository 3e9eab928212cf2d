"""Write random programs of the script language."""

from __future__ import annotations

from script_expressions import Expressions
from script_prelude import HEAD

ALL = (
    *("int", "float", "bool", "str", "ints", "dict", "tensor", "maybe"),
    *("floats", "grid", "table", "pair", "names", "lists", "rec", "tally"),
)


class Writer(Expressions):
    """Write one program."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.lines: list[str] = []
        self.count = 0
        self.depth = 0
        self.loops = 0

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
            kinds += ["if", "for", "while", "refine", "leave", "pairs", "alias", "unpack", "chain"]
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
            cut = {"ints": "[:6]", "floats": "[:6]", "grid": "[:4]", "str": "[:8]", "names": "[:5]"}
            self.line(f"{name} = {self.expr(scope, kind)}{cut.get(kind, '')}")

    def do_change(self, scope: dict[str, str]) -> None:
        xs, d = self.name(scope, "ints"), self.name(scope, "dict")
        grid, table = self.name(scope, "grid"), self.name(scope, "table")
        names, lists = self.name(scope, "names"), self.name(scope, "lists")
        t, tally = self.name(scope, "tensor"), self.name(scope, "tally")
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
            *(
                f"{names}.append(<str>)",
                f"!{names}.pop()",
                f"{names}[0] = <str>",
                f"{names}.sort()",
            ),
            *(f"{lists}[<str>] = <ints>", f"!{lists}[<str>].append(<int>)", f"!del {lists}[<str>]"),
            *(
                f"{lists}.setdefault(<str>, <ints>).append(<int>)",
                f"!{lists}.pop(<str>)",
                f"{d}.clear()",
            ),
            *(
                f"{t}[0] = <float>",
                f"{t}[-1] += <float>",
                f"{t}[0:1] = <tensor>[1:2]",
                f"{t}.mul_(2)",
            ),
            *(f"{t}[<int> % 2] = <int>", f"{t} += <tensor>", f"{t}.add_(<float>)", f"{t}.zero_()"),
            *(f"{tally}.add(<int>)", f"{tally}.n = <int>", f"{tally}.names.append(<str>)"),
            *(
                f"{tally}.n += <int>",
                f"{tally}.last = <maybe>",
                f"!{xs}[5] = <int>",
                f"{xs}.clear()",
            ),
            f"{d}.setdefault(<str>, <int>)",
            *("!assert <bool>, 'not so: ' + <str>", "assert <bool> or True"),
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
            (f"{self.expr(scope, 'lists')}.items()", "str", "ints"),
            (f"zip({self.expr(scope, 'names')}, {self.expr(scope, 'grid')})", "str", "ints"),
            (f"enumerate({self.expr(scope, 'grid')})", "int", "ints"),
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
        how = self.pick("is not", "is not", "is not", "both", "else", "assigned")
        if how == "both":
            self.line(f"if {name} is not None and {name} > {self.expr(scope, 'int')}:")
            self.line(f"    a = {name} + 1")
            return
        if how == "else":
            self.line(f"a = {name} if {name} is not None else {self.expr(scope, 'int')}")
            return
        if how == "assigned" and not self.loops:
            self.line(f"if {name} is None:")
            self.line(f"    {name} = {self.expr(scope, 'int')}")
            self.line(f"a += {name}")
            self.line(f"{name} = torch.jit.annotate(Optional[int], {name})")
            return
        self.line(f"if {name} is not None:")
        self.depth += 1
        self.body({k: v for k, v in scope.items() if k != name}, 1)
        self.line(f"a = {name}")
        self.depth -= 1

    def do_unpack(self, scope: dict[str, str]) -> None:
        """Take a tuple apart, or have two names change places."""
        n, x = self.name(scope, "int"), self.name(scope, "float")
        loop = (name for name in (n, x) if name and name.startswith("i"))
        if n is None or x is None or any(loop):
            return
        text = self.chosen(
            scope,
            0,
            f"{n}, {x} = <pair>",
            f"({n}, {x}), {n} = <pair>, <int>",
            f"{n}, {x} = <rec>.inner",
            f"a, {n} = {n}, a",
            f"{n}, a = divmod(<int>, 5)",
        )
        self.line(text)

    def do_chain(self, scope: dict[str, str]) -> None:
        """Ask several things in turn, of which each may leave."""
        self.line(f"if {self.expr(scope, 'bool')}:")
        for k in range(self.rng.randint(1, 2)):
            if k:
                self.line(f"elif {self.expr(scope, 'bool')}:")
            self.depth += 1
            self.body(dict(scope), 1)
            if self.rng.random() < 0.3:
                self.line(f"return {self.result(scope)}")
            self.depth -= 1
        self.line("else:")
        self.depth += 1
        self.body(dict(scope), 1)
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
