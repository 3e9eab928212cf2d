"""Write random expressions of the script language, each of a type."""

from __future__ import annotations

import random
import re
from typing import Any


class Expressions:
    """Writes expressions of what is in scope.

    Attributes:
        rng: what is random.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

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
            "names": self.pick("['a', 'bc']", "['']", "['x', 'ab', 'a']"),
            "lists": self.pick("{'a': [1, 2]}", "{'b': [3], 'c': [0, 4]}"),
            "rec": "nested(2, 0.5, [1, 2], 'q')",
            "tally": self.pick("Tally(1, ['a'])", "Tally(3, [])"),
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
            *("<rec>.inner.n", "<rec>[0][0]", "<rec>.xs[0]", "len(<rec>.xs)", "len(<tally>)"),
            *("<tally>.add(<int>)", "<tally>.told()", "<tally>.n", "(<tally> + <int>)"),
            *("filled(<maybe>, <names>)", "len(<names>)", "<names>.count(<str>)", "len(<lists>)"),
            *(
                "!<lists>[<str>][0]",
                "!<names>.index(<str>)",
                "<str>.find(<str>)",
                "<str>.rfind('a')",
            ),
            *(
                "<str>.count('a')",
                "max(<ints> + [1])",
                "!ord(<str>)",
                "!int(<str>)",
                "int(round(<float>))",
            ),
            *("!divmod(<int>, <int>)[1]", "divmod(<int>, 7)[0]", "math.gcd(<int>, <int>)"),
            *(
                "int(<int> ** 2)",
                "!int(pow(<int>, <int> % 4))",
                "<tensor>.size(0)",
                "<tensor>.shape[-1]",
            ),
            *(
                "<tensor>.numel()",
                "int(<tensor>[-1])",
            ),
            *("math.ceil(<float>)", "len(f'{a}')", "hash(<int> % 9)"),
            f"(<int> // {self.pick(-2, -1, 1)} % {self.pick(-5, 3)})",
            f"<ints>[{self.pick('-2:', ':-1', '1:9', '-9:')}].count(<int>)",
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
            *(
                "<rec>.inner.x",
                "<rec>[0][1]",
                "float(<tensor>.max())",
            ),
            *("math.exp(<float> % 3.0)", "math.log(abs(<float>) + 1.0)", "math.pow(<float>, 2.0)"),
            *(
                "(abs(<float>) ** 0.5)",
                "(<float> ** 2)",
                "(<int> ** <int>)",
                "math.fmod(<float>, 3.0)",
            ),
            *(
                "!float(<str>)",
                "divmod(<float>, 2.0)[1]",
                "(<float> // <float>)",
                "(<float> % <float>)",
            ),
            *(
                "math.copysign(<float>, <float>)",
                "max(<floats>)",
                "min(<floats>)",
                "round(<float>)",
            ),
            *("(<int> % <float>)", "(<float> // <int>)", "math.ldexp(<float>, 2)"),
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
            *(
                "(<str> in <str>)",
                "(<str> in <names>)",
                "(<int> not in <ints>)",
                "(<str> not in <lists>)",
            ),
            *("(<int> < <int> < <int>)", "(<int> <= <int> > <int>)"),
            *(
                "(<names> == <names>)",
                "<str>.startswith('a')",
                "<str>.isdigit()",
                "<str>.isalpha()",
            ),
            *(
                "(<rec>.name is None)",
                "all([x > 0 for x in <ints>])",
                "bool(<int>)",
                "bool(<float>)",
            ),
            *("(<maybe> is not None)", "(<floats> == <floats>)", "(<float> in <floats>)"),
            *(
                "math.isnan(<float>)",
                "bool(torch.any(<tensor> > 1))",
                "(<str> < <str>)",
                "bool(<str>)",
            ),
            *(
                "(<tally>.last is None)",
                "isinstance(<maybe>, int)",
                "(<rec>.xs == <ints>)",
            ),
            *(
                "<str>.endswith(<str>)",
                "<str>.isspace()",
                "<str>.islower()",
            ),
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
            *("<floats>[::2]", "<floats>[-1:]", "<floats>[::-1]"),
            "[x * 0.5 for x in <ints>]",
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
            *("f'{a}:{c}'", "'{} {}'.format(<int>, <str>)", "('%d,%s' % (<int>, <str>))"),
            *(
                "str(<float>)",
                "f'{b}'",
                "'{}'.format(<floats>)",
                "str(<bool>)",
                "str(<dict>)",
            ),
            *(
                "str(<pair>)",
                "str(<names>)",
                "str(<maybe>)",
                "f'{b} {o} {xs}'",
                "str(<lists>)",
            ),
            f"<str>[{self.pick('-2:', '::2', '1:-1', '-1:9', ':-3', '::-1')}]",
            *(
                "<str>.lower()",
                "<str>.strip()",
                "<str>.title()",
                "<str>.capitalize()",
            ),
            *(
                "('%s' % <int>)",
                "('%.2f' % <float>)",
                "('%5d|' % <int>)",
                "<str>.ljust(4)",
            ),
            *(
                "','.join(<names>)",
                "<names>[0]",
                "chr(<int> % 90 + 33)",
                "hex(<int>)",
                "bin(<int>)",
            ),
            *(
                "oct(<int>)",
                "<str>.swapcase()",
                "<str>.center(5)",
                "<str>.rjust(4, '*')",
                "<str>.lstrip('a')",
            ),
            *("!<str>.split('a')[1]", "<str>.partition('a')[2]", "<str>.expandtabs()"),
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
            "[x for x in range(<int> % 6, <int> % 9)]",
            f"[x for x in range({self.pick(0, 5, -2)}, {self.pick(3, -1)}, {self.pick(1, 3, -2)})]",
            f"<ints>[{self.pick('-2:', '::-1', ':-1', '5:', '-9:2', '1:4:2', '-1:0:-1')}]",
            *("<rec>.xs", "!<lists>[<str>]", "[len(x) for x in <names>]", "list(range(<int> % 4))"),
            *("[x // 2 for x in <ints>]", "[-x % 3 for x in <ints>]", "[ord(x) for x in <str>]"),
            *(
                "sorted(<dict>.values())",
                "[a if a > 1 else -a for a in <ints>]",
                "<tensor>.size()",
            ),
            *("<tensor>.size()", "list(<ints>)", "<lists>.get(<str>, <ints>)", "<ints>.copy()"),
        )

    def make_names(self, scope: dict[str, str], d: int) -> str:
        return self.chosen(
            scope,
            d,
            *("[<str>, <str>]", "<str>.split('a')", "(<names> + <names>)", "sorted(<names>)"),
            *("list(<dict>.keys())", "[x.upper() for x in <names>]", "[str(x) for x in <ints>]"),
            *("<names>[::2]", "<names>[-1:]", "<str>.split()", "[x for x in <str>]", "list(<str>)"),
            *("<str>.splitlines()", "<str>.rsplit('b')", "list(<lists>)", "[k for k in <lists>]"),
        )

    def make_lists(self, scope: dict[str, str], d: int) -> str:
        return self.chosen(
            scope,
            d,
            *("{<str>: <ints>}", "{x: [len(x)] for x in <names>}", "{<str>: <ints>, <str>: [1]}"),
            *("<lists>.copy()", "dict(<lists>)", "{k: v + [1] for k, v in <lists>.items()}"),
        )

    def make_rec(self, scope: dict[str, str], d: int) -> str:
        return self.chosen(
            scope,
            d,
            "nested(<int>, <float>, <ints>, <str>)",
            "nested(<int>, <float>, <ints>, None)",
            "Outer(Inner(<int>, <float>), <ints>, None)",
            "Outer(inner=Inner(n=<int>, x=<float>), xs=<ints>, name=<str>)",
            "(<rec> if <bool> else <rec>)",
        )

    def make_tally(self, scope: dict[str, str], d: int) -> str:
        return self.chosen(scope, d, "Tally(<int>, <names>)", "(<tally> if <bool> else <tally>)")

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
            *("torch.tensor([<float>, <float>])", "(<tensor> * <int>)", "(<float> - <tensor>)"),
            *("torch.stack([<tensor>, <tensor>]).sum(0)", "<tensor>.flip(0)", "(-<tensor>)"),
            *("torch.cat([<tensor>, <tensor>])[:2]", "<tensor>[:2]", "<tensor>.clone()"),
            *("<tensor>.cumsum(0)", "(<tensor> / 2)", "(<tensor> // 2)", "(<tensor> % 3)"),
            *("<tensor>.masked_fill(<tensor> > 1, <float>)", "torch.exp(<tensor>.clamp(max=1))"),
            *("(<tensor> > <int>).float()", "<tensor>[[1, 0]]", "<tensor>[<tensor> > -9][:2]"),
            *(
                "(torch.arange(2) * <tensor>)",
                "torch.max(<tensor>, <tensor>)",
                "(2 ** <tensor>.clamp(-3, 3))",
            ),
            "torch.full([2], <float>)",
        )

    def make_maybe(self, scope: dict[str, str], d: int) -> str:
        return self.chosen(
            scope,
            d,
            "torch.jit.annotate(Optional[int], None)",
            "torch.jit.annotate(Optional[int], <int>)",
            "<dict>.get(<str>)",
            *("<tally>.last", "(<int> if <bool> else None)", "(None if <bool> else <maybe>)"),
        )
