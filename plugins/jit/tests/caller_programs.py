# ruff: noqa: E501 - the texts of programs' lines break badly
"""Texts of random programs whose callers change whatever a caller may, from call to call.

A program is a module's text over a library `T`. It defines `State`, all that the function holds
(tensors, a module, numbers, steps of an optimizer), `make_function(S)`, and `CALLS`: per call what
happens before it, its arguments, the modes it is made in, and whether a thread of its own makes it.
The function writes into arguments, into views of them, and into what is held, with numbers that
come from everywhere. `random_callers.py` runs the programs, compiled and as they are.
"""

from __future__ import annotations

import random

from caller_bodies import FLOATS, INTEGERS, LAYOUTS, NUMBERS, OTHER_DTYPES, SHAPES, Body
from caller_prelude import PRELUDE
from caller_surroundings import AROUND, CLASSES, DEFAULTS, HOOKS, MODES


class Writer(Body):
    """Writes one program, the function and its callers."""

    def text(self) -> str:
        """Return the program."""
        dice = self.dice
        for _ in range(dice.choice((1, 1, 2, 3, 4, 6))):
            self.statement()
        if dice.random() < 0.3:
            self.own_backward()
        optimizer = dice.choice(("SGD", "Adam", "RMSprop", "AdamW"))
        body = "\n".join(self.lines)
        prelude = PRELUDE.replace("OPTIMIZER", optimizer)
        head = f"SHAPE, FLOAT = {list(self.shape)}, {self.float!r}\n"
        names = "        global FACTOR\n        nonlocal kept\n"
        function = (
            f"def make_function(S):\n    kept = 0.5\n{self.mode()}    def f(a, b, k, m, box):\n{names}"
            f"{body}\n        return {self.result()}\n    return f\n"
        )
        calls = ",\n".join(map(repr, self.calls()))
        return f"{head}{prelude}\n\n{function}\n\nCALLS = [\n{calls}\n]\n"

    def mode(self) -> str:
        """Return the decorator of some functions, all of which run in a mode."""
        apart = random.Random(f"mode of {self.seed}")  # the other choices stay as they were
        mode = apart.choice(("inference_mode", "inference_mode", "no_grad"))
        return f"    @T.{mode}()\n" if apart.random() < 0.06 else ""

    # --- the callers -------------------------------------------------------------------------

    def calls(self) -> list[dict[str, object]]:
        """Return what the calls are.

        First a usual one, again and again at other numbers, until a graph serves it; then that one
        and a few changed ones in turn, so that graphs serve some of these, too, and each call comes
        after others.
        """
        dice = self.dice
        usual = self.usual_call()
        used = [name for name, text in NAMES.items() if any(text in line for line in self.lines)]
        varied = dice.sample(used, min(len(used), dice.choice((0, 1, 1, 1, 2, 2))))
        if dice.random() < 0.1:
            varied.append(dice.choice(list(NAMES)))
        place = dice.choice(STATE_NUMBERS) if dice.random() < 0.3 else ""
        found = []
        for _ in range(dice.choice((5, 6, 6, 7))):
            found.append(self.with_other_numbers(usual, varied, place))
        variants = []
        for _ in range(dice.choice((1, 2, 2, 3))):
            variant = dict(usual)
            for _ in range(dice.choice((1, 1, 1, 2))):
                self.change(variant)
            variants.append(variant)
        for _ in range(dice.choice((6, 8, 10))):
            call = dice.choice((usual, *variants)) if dice.random() < 0.8 else usual
            found.append(self.with_other_numbers(call, varied, place))
            if call is not usual and dice.random() < 0.7:
                call["before"] = ""  # what happens outside happens once, mostly
        return found

    def with_other_numbers(
        self, call: dict[str, object], varied: list[str], place: str
    ) -> dict[str, object]:
        """Return a call with other numbers in some places, of the kind that they have."""
        dice, made = self.dice, dict(call)
        for name in varied:
            now = str(call[name])
            kind = next((k for k in ("float", "int") if now in NUMBERS[k]), "odd")
            if kind != "odd":
                made[name] = dice.choice(NUMBERS[kind])
        if place and not made["before"] and dice.random() < 0.8:
            made["before"] = place.format(dice.choice(NUMBERS["float"]))
        return made

    def usual_call(self) -> dict[str, object]:
        dice = self.dice
        kinds = [dice.choice(("float", "float", "int")) for _ in range(4)]
        k, m, box_k, pair = (dice.choice(NUMBERS[kind]) for kind in kinds)
        # Of integers more numbers are beyond what they hold.
        dtype = dice.choice(INTEGERS) if dice.random() < 0.1 else self.float
        a = self.tensor_text(self.shape, dtype, grad=dtype in FLOATS and dice.random() < 0.15)
        call: dict[str, object] = {"before": "", "a": a, "k": k, "m": m, "box_k": box_k}
        call["b"] = self.tensor_text(self.shape, self.float, start=0.8, grad=dice.random() < 0.15)
        call["x"] = self.tensor_text(self.shape, self.float, start=0.6)
        call["many"] = "[" + self.tensor_text(self.shape, self.float, start=1.9) + "]"
        backward = dice.choice((False, False, False, True, True, "of one"))
        backward = dice.choice(("later", "twice", "retained")) if dice.random() < 0.1 else backward
        call.update(pair=pair, extra="", mode="", thread=False, backward=backward)
        used = "\n".join(self.lines)
        call.update(around="", between="", as_box="")
        call.update(by_name="", order="abxm", point="box['x']" if "['point']" in used else "")
        call.update(record="S.held" if "['record']" in used else "")
        if dice.random() < 0.15:
            self.change(call)
        return call

    def tensor_text(
        self, shape: tuple[int, ...], dtype: str, start: float = 0.0, grad: bool = False
    ) -> str:
        layout = self.dice.choice(LAYOUTS) if self.dice.random() < 0.1 else "plain"
        return f"t({list(shape)}, {dtype!r}, {start}, {layout!r}, {grad})"

    def change(self, call: dict[str, object]) -> None:
        """Change something of a call."""
        dice = self.dice
        place = dice.choice(("a", "b", "x", "many"))
        start = round(dice.random() * 2, 2)
        kind = dice.choice(CHANGES)
        if kind == "number":
            name = dice.choice(("k", "m", "box_k", "pair"))
            call[name] = dice.choice(NUMBERS[dice.choice(("odd", "odd", "int", "float"))])
        elif kind in ("shape", "sizes", "dtype", "layout", "grad"):
            shape, dtype = self.shape, self.float
            if kind == "shape":
                shape = dice.choice((*SHAPES, (), (0,), (1,), (0, 3)))
            elif kind == "sizes":
                shape = tuple(n + dice.choice((0, 1, 2, 3)) for n in shape)
            elif kind == "dtype":
                dtype = dice.choice(OTHER_DTYPES)
            layout = dice.choice(LAYOUTS) if kind == "layout" else "plain"
            grad = kind == "grad" and dtype in FLOATS
            made = f"t({list(shape)}, {dtype!r}, {start}, {layout!r}, {grad})"
            for name in ("a", "b", "x", "many") if kind == "sizes" else (place,):
                call[name] = f"[{made}]" if name == "many" else made
        elif kind == "alias":
            self.alias(place, call)
        elif kind == "mode":
            call["mode"] = dice.choice(MODES)
        elif kind == "around":
            call.update(around=dice.choice(AROUND), by_name="")
        elif kind == "between":
            call["between"] = dice.choice(BETWEEN)
            call["backward"] = call["backward"] or dice.choice((True, "twice", "retained"))
        elif kind == "box":
            call["as_box"] = dice.choice(BOXES)
        elif kind in ("default", "hooks", "classes"):
            one = {"default": DEFAULTS, "hooks": HOOKS, "classes": CLASSES}[kind]
            call["before"] = dice.choice(one)
        elif kind == "thread":
            call["thread"] = True
        elif kind == "names":
            call.update(by_name="".join(dice.sample("abkmx", 5)), around="")
        elif kind == "nesting":
            one = self.tensor_text(self.shape, self.float, start)
            call["many"] = dice.choice(
                (
                    *(f"[{one}, {one}]", f"({one},)", f"[{one}, 0.5]", f"{one}", f"Many([{one}])"),
                    *(
                        f"collections.deque([{one}])",
                        f"{{0: {one}}}",
                        f"collections.UserList([{one}])",
                    ),
                    *(f"Point({one})", f"[{one}] * 2", f"[a, {one}]"),
                )
            )
        elif kind == "inferred":
            call[place] = f"inferred(lambda: {call[place]})"
        elif kind == "graded" and place != "many":
            call[place] = f"graded({call[place]})"
        elif kind == "history":
            self.history(place, call)
        elif kind == "earlier" and place != "many":
            call[place] = f"old(R, lambda: {call[place]})"
        elif kind == "members":
            one = dice.choice(("a", "b", "S.held", f"{self.tensor_text(self.shape, self.float)}"))
            call[dice.choice(("point", "record"))] = one
        elif kind == "odd tensors":
            call[place] = self.odd_tensor(place, str(call[place]), start)
        else:
            call["before"] = self.outside()

    def odd_tensor(self, place: str, now: str, start: float) -> str:
        """Return an argument that is no plain tensor of numbers."""
        plain = self.tensor_text(self.shape, self.float, start)
        one = self.dice.choice(
            (
                *(f"{plain}.to(T.complex64)", f"{plain}.to(T.complex64).conj()", "0.5", "None"),
                *(f"T.nn.Parameter({plain})", f"{plain}.to_sparse()", f"{plain}.as_subclass(Own)"),
                *(f"{plain}.to('meta')", f"{plain}.numpy()", f"{plain}.float().numpy()[0]"),
                *(f"{plain}.clone(memory_format=T.preserve_format)", f"{plain}[None]", "[]", "{}"),
                f"T.quantize_per_tensor({plain}.float(), 0.1, 0, T.quint8)",
            )
        )
        return f"[{one}]" if place == "many" else one if self.dice.random() < 0.9 else now

    def alias(self, place: str, call: dict[str, object]) -> None:
        """Have an argument share memory with another one, or with what is held."""
        dice = self.dice
        rows = (3 * self.shape[0], *self.shape[1:])
        n = self.shape[0]
        base = f"base = {self.tensor_text(rows, self.float, 0.3)}"
        other = "b" if place == "a" else "a"
        one = dice.choice(
            (
                *("S.held", "S.other", "S.net.running", "S.net.weight", "S.moment['m']", "S.row"),
                *("S.net.weight.grad", "S.held.view(-1)", "S.held[:]", "S.net.weight.detach()"),
                *(other, other, other, f"{other}[:]", f"{other}.detach()", f"{other}.view(-1)"),
                *(f"{other}[1:]", f"{other}.transpose(0, -1)", f"{other}.data"),
                *(f"base[:{n}]", f"base[1:{n + 1}]", f"base[{n}:{2 * n}]"),
            )
        )
        if one.startswith("base"):
            # Another argument shows the same base: the same of it, a part, or all.
            call[other] = dice.choice((f"base[:{n}]", f"base[{n // 2}:{n // 2 + n}]", "base"))
        call["order"] = "baxm" if place == "a" else "abxm"
        call["extra"] = base
        call[place] = f"[{one}]" if place == "many" else one

    def history(self, place: str, call: dict[str, object]) -> None:
        """Have an argument be computed from a leaf, from what is held, or from another one."""
        other = "b" if place == "a" else "a"
        one = self.dice.choice(
            (
                f"({call[place]}).requires_grad_() * 1.5"
                if place != "many"
                else "S.net.weight * 2",
                *("S.net.weight * 1.5", "S.net.weight.exp()", "S.net.weight.view(SHAPE)"),
                *("S.net(S.held)", "S.net.weight[:]", f"S.net({other})", f"{other} * S.net.weight"),
                *(
                    f"{other} * 2",
                    f"{other}.requires_grad_().exp()",
                    f"{other}.requires_grad_()[:]",
                ),
                f"SquareOf.apply({other} * S.net.weight)",
            )
        )
        call["order"] = "baxm" if place == "a" else "abxm"
        call[place] = f"[{one}]" if place == "many" else one

    def outside(self) -> str:
        """Return a statement by which the program outside changes what the function holds."""
        shape = list(self.shape)
        return self.dice.choice(
            (
                "S.net.train(not S.net.training)",
                f"S.net.running = t({shape}, FLOAT, 1.3)",
                "S.held = S.other",
                f"S.held = t({shape}, FLOAT, 0.7)",
                "S.held.data = S.other",
                "S.net.running.data = S.net.weight.data",
                "S.net.weight.data = S.net.weight.data * 0.5",
                f"S.held.data = t({shape}, FLOAT, 0.7, 'turned')",
                "S.other.set_(S.held)",
                "S.other = S.held[:]",
                "S.held.fill_(0.25)",
                "S.net.weight.requires_grad_(not S.net.weight.requires_grad)",
                "S.net.weight.grad = None",
                f"S.net.weight.grad = t({shape}, FLOAT, 0.1)",
                f"S.net.weight.grad = t({shape}, FLOAT, 0.1, 'turned')",
                "S.net.weight.grad = S.held",
                "S.net.bias.grad = t(SHAPE[-1:], FLOAT, 0.3)",
                f"S.held.grad = t({shape}, FLOAT, 0.2)",
                *("S.names.add('two')", "S.log.append(2)", "S.net.table['none'] = 1"),
                *("S.names.clear()", "S.log.clear()"),
                "S.held.detach_().requires_grad_(False).mul_(S.net.weight)",
                "S.moment['m'] = S.moment['v']",
                "S.moment = {'v': S.moment['v'], 'm': S.moment['m']}",
                "S.net.weight = T.nn.Parameter(S.net.weight.detach() + 1)",
                "S.net.table['many'].append(3)",
                "S.net.double()",
                "S.net.table['scale'] = 2",
                "S.rate, S.count = S.count, S.rate",
                "S.optimizer.param_groups[0]['weight_decay'] = 0.05",
                "S.held.requires_grad_(not S.held.requires_grad)",
                "S.net.bias.register_hook(lambda grad: grad * 2) if S.net.bias.requires_grad else 0",
                "T.manual_seed(3)",
                f"S.held = inferred(lambda: t({shape}, FLOAT, 0.7))",
                "S.net.running = inferred(lambda: S.net.running * 2)",
                f"S.net.weight.grad = inferred(lambda: t({shape}, FLOAT, 0.1))",
                "S.row = inferred(lambda: S.held[..., :1])",
                f"S.rate, S.count = {self.dice.choice(NUMBERS['odd'])}, 2",
                f"S.count = {self.dice.choice(NUMBERS['odd'])}",
                *self.outside_of_state(shape),
            )
        )

    def outside_of_state(self, shape: list[int]) -> tuple[str, ...]:
        """Return statements that change names, code, hooks, generators and results of before."""
        k = self.dice.choice(NUMBERS["float"])
        made = f"t({shape}, FLOAT, 0.7)"
        return (
            *(f"FACTOR = {k}", f"TABLE['k'] = {k}", f"TABLE = {{'k': {k}, 't': 1}}", "FACTOR = 2"),
            *("helper = lambda x, k=1.5: x + k", "helper.__defaults__ = (0.75,)"),
            "helper.__code__ = (lambda x, k: x - k).__code__",
            "S.inner = lambda x, k=2.0: x - k",
            *("Net.forward = lambda self, x: x - self.weight", "S.net.forward = lambda x: x * 2"),
            *(f"S.net.{name} = {made}" for name in ("weight.data", "last")),
            "S.net.register_forward_hook(lambda module, given, made: made * 2)",
            "S.net.register_forward_pre_hook(lambda module, given: (given[0] + 1,))",
            *("S.net = copy.deepcopy(S.net)", "S = copy.copy(S)", "S.net.eval()"),
            f"S.net.load_state_dict({{n: v * {k} for n, v in S.net.state_dict().items()}})",
            "S.optimizer.load_state_dict(S.optimizer.state_dict())",
            *("S.generator.manual_seed(3)", "T.set_rng_state(T.get_rng_state())", "T.rand(1)"),
            *(f"touch(R, {k})", f"touch(R, {k})", "R.clear()", "S.stored = R[-1:] or S.stored"),
            *(
                f"S.stored = [{made}]",
                f"S.stored.append({made})",
                "S.held = S.held.as_subclass(Own)",
            ),
            *("S.held = T.nn.Parameter(S.held.detach())", "S.net.half()", "S.net.to(T.bfloat16)"),
            "S.net.weight = T.nn.Parameter(S.net.weight.detach().t().contiguous().t())",
            "S.net.weight.register_hook(lambda grad: grad * 3) if S.net.weight.requires_grad else 0",
            "T.nn.utils.parametrizations.weight_norm(S.net)",
        )


# What a call gives -> how a function has it.
NAMES = {"k": "k", "m": "m", "box_k": "box['k']", "pair": "box['pair'][1]"}
STATE_NUMBERS = (
    *("S.rate = {0}", "S.net.rate = {0}", "S.net.table['scale'] = {0}"),
    *("S.net.table['many'][1] = {0}", "S.optimizer.param_groups[0]['lr'] = abs({0})"),
    *("S.count = int({0} * 8)", "S.rate = {0}", "S.count, S.rate = 3, {0}"),
    *("FACTOR = {0}", "TABLE['k'] = {0}"),
)
# What happens between a call and its backward pass.
BETWEEN = (
    *("a.detach().mul_(2)", "b.detach().add_(1)", "box['x'].detach().neg_()", "a.data.zero_()"),
    *("S.net.weight.detach().mul_(2)", "S.held.detach().add_(1)", "S.net.weight.data.add_(1)"),
    *("S.net.weight.grad = None", "a.requires_grad_(False)", "T.set_grad_enabled(False)"),
    *(
        "a.data = a.data.clone() * 2",
        "del a, b, box",
        "S.net.double()",
        "S.net.eval()",
        "gc.collect()",
    ),
    *("T.manual_seed(9)", "S.net.bias.register_hook(lambda g: g * 3)", "a.detach().resize_(0)"),
    *("T.set_autocast_enabled('cpu', True)", "T.set_default_dtype(T.float64)"),
)
BOXES = (
    *("collections.OrderedDict(box)", "dict(reversed(box.items()))", "Box(box)", "again(S, box)"),
    *("{**box, 'extra': 1}", "again(S, box)", "again(S, box)", "types.MappingProxyType(box)"),
    "collections.defaultdict(float, box)",
)
CHANGES = (
    *("number", "number", "number", "shape", "sizes", "sizes", "dtype", "layout", "grad"),
    *("alias", "alias", "alias", "mode", "mode", "thread", "names", "nesting", "outside"),
    *("outside", "outside", "history", "history", "graded", "inferred", "outside", "outside"),
    *("earlier", "members", "odd tensors", "around", "around", "around", "between", "between"),
    *("box", "default", "default", "default", "hooks", "hooks", "classes", "classes", "classes"),
)


def program_text(seed: int, attempt: int = 0) -> str:
    """Return the text of a seed's program, or of another one where that says too little."""
    return Writer(f"{seed}, again {attempt}" if attempt else seed).text()
