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

PRELUDE = '''
def t(shape, dtype="float32", start=0.0, layout="plain", grad=False):
    """A tensor of given values; what is no plain one shows a part of a larger one."""
    shape = list(shape)
    own = shape[::-1] if layout == "turned" else [2 * n for n in shape]
    own = shape if layout == "plain" else own
    if layout == "spread":
        own = shape[:-1] + [1] * bool(shape)
    count = 1
    for n in own:
        count *= n
    values = (T.arange(count, dtype=T.float64) * 0.37 + start) % 2.3 - 0.9
    if dtype[0] in "iub":
        values = (T.arange(count) * 3 + int(start)) % 7 - (0 if dtype[0] in "ub" else 3)
    made = values.to(getattr(T, dtype)).reshape(own)
    if layout == "turned":
        made = made.permute(*range(len(shape))[::-1])
    elif layout == "strided":
        made = made[tuple([slice(0, None, 2)] * len(shape))]
    elif layout == "spread":
        made = made.expand(shape)
    return made.requires_grad_() if grad else made


def graded(tensor):
    """A leaf with a gradient, whether it requires one or not."""
    tensor.grad = tensor.detach() * 0.5
    return tensor


def inferred(make):
    """What is made in inference mode, of which outside of it neither writes nor records are."""
    with T.inference_mode():
        return make()


class default_dtype:
    """New tensors are of a dtype."""

    def __init__(self, dtype):
        self.dtype = dtype

    def __enter__(self):
        self.before = T.get_default_dtype()
        T.set_default_dtype(self.dtype)

    def __exit__(self, *error):
        T.set_default_dtype(self.before)


class SquareOf(T.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad * ctx.saved_tensors[0]


class Net(T.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = T.nn.Parameter(t(SHAPE, FLOAT, 0.4))
        self.bias = T.nn.Parameter(t(SHAPE[-1:], FLOAT, 0.9))
        self.register_buffer("running", t(SHAPE, FLOAT, 0.2))
        self.register_buffer("count", T.zeros((), dtype=T.int64))
        self.rate, self.steps, self.table = 0.5, 2, {"scale": 1.25, "many": [2, 0.75]}

    def forward(self, x):
        return x * self.weight + self.bias


class State:
    def __init__(self):
        self.net = Net()
        self.held = t(SHAPE, FLOAT, 1.1)
        self.row = self.held[..., :1]
        self.other = t(SHAPE, FLOAT, 1.7)
        self.moment = {name: T.zeros(SHAPE, dtype=getattr(T, FLOAT)) for name in ("m", "v")}
        self.rate, self.count = 0.3, 3
        self.names, self.log = {"one"}, [1]
        self.optimizer = T.optim.OPTIMIZER(self.net.parameters(), lr=0.1)

    def tensors(self):
        made = {"held": self.held, "row": self.row, "other": self.other, **self.moment}
        return {**made, **dict(self.net.named_parameters()), **dict(self.net.named_buffers())}

    def others(self):
        """What is held beside tensors: numbers, flags, members, options, hooks."""
        net, group = self.net, self.optimizer.param_groups[0]
        options = {k: v for k, v in group.items() if k != "params"}
        hooks = [len(p._backward_hooks or ()) for p in net.parameters()]
        numbers = self.rate, self.count, net.rate, net.steps, net.table, net.training
        return repr((numbers, sorted(self.names), self.log, options, hooks, T.is_grad_enabled()))
'''

SHAPES = ((4,), (2, 3), (3, 4), (5,), (6, 2), (1, 4), (2, 3, 2), (16, 33))
FLOATS = ("float32", "float32", "float32", "float64", "float64", "bfloat16", "float16")
OTHER_DTYPES = ("float64", "float32", "int64", "int32", "float16", "uint8", "bool", "bfloat16")
INTEGERS = ("int8", "uint8", "int32", "int64", "bool")
LAYOUTS = ("turned", "strided", "spread", "plain")
NUMBERS = {
    "float": ("0.1", "0.25", "-1.5", "3.7", "0.9", "2.125", "-0.3", "1e-3", "7.5", "0.6"),
    "int": ("2", "3", "-2", "5", "7", "4", "11", "-3"),
    "odd": (
        *("0", "1", "-1", "0.0", "-0.0", "1.0", "-1.0", "2.0", "0.5", "True", "False", "1e30"),
        *("1e-30", "1e300", "1e-310", "2**31", "2**40", "-(2**63)", "2**63 - 1", "2**63"),
        *("1e39", "-1e39", "7e4", "300", "-129", "1e38", "300.5"),
        *('float("nan")', 'float("inf")', '-float("inf")', "2**200", "16777217", "3 + 0j"),
    ),
}
UNARY = ("sin", "tanh", "abs", "square", "sigmoid", "neg", "relu", "exp", "clone", "floor")
IN_PLACE = ("sin_", "tanh_", "neg_", "abs_", "relu_", "sigmoid_", "zero_", "square_", "round_")
COMPARED = ("<", ">", "<=", "==", "!=")


class Writer:
    """Writes one program.

    Attributes:
        lines: of the function's body. tensors, numbers: the names that it may use.
    """

    def __init__(self, seed: int | str) -> None:
        self.dice = random.Random(seed)
        self.shape = self.dice.choice(SHAPES)
        self.float = self.dice.choice(FLOATS)
        self.lines: list[str] = []
        self.depth = 1
        self.made = 0
        self.tensors = ["a", "b", "box['x']", "box['many'][0]", "S.held", "S.other"]
        self.tensors += ["S.net.weight", "S.net.running", "S.moment['m']", "S.moment['v']"]
        self.numbers = ["k", "m", "k", "m", "box['k']", "box['pair'][1]", "S.rate", "S.count"]
        self.numbers += ["S.net.rate", "S.net.table['scale']", "S.net.table['many'][1]"]
        # Programs that use little pass through more stages than those that use everything.
        keep = self.dice.choice((2, 3, 4, 10))
        self.tensors = ["a", *self.dice.sample(self.tensors[1:], keep - 1)]
        self.numbers = ["k", *self.dice.sample(self.numbers[1:], self.dice.choice((1, 2, 8)))]
        self.few = keep < 10

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
        function = (
            "def make_function(S):\n    def f(a, b, k, m, box):\n"
            f"{body}\n        return {self.result()}\n    return f\n"
        )
        calls = ",\n".join(map(repr, self.calls()))
        return f"{head}{prelude}\n\n{function}\n\nCALLS = [\n{calls}\n]\n"

    def add(self, line: str) -> None:
        self.lines.append("    " * (self.depth + 1) + line)

    def tensor(self) -> str:
        return self.dice.choice(self.tensors)

    def number(self) -> str:
        """Return an expression of numbers."""
        dice, one = self.dice, self.dice.choice(self.numbers)
        chance = dice.random()
        if chance < 0.6:
            return one
        if chance < 0.75:
            return f"({one} {dice.choice('+-*')} {dice.choice((*self.numbers, '2', '0.5'))})"
        if chance < 0.85:
            return f"(1 - {one})"
        if chance < 0.9:
            return f"({one} * {one} + 1) ** 0.5"
        return dice.choice((f"-{one}", f"abs({one})", "0.75", "2", f"({one} // 2)", f"({one} % 3)"))

    def value(self) -> str:
        """Return an expression of tensors."""
        dice, one = self.dice, self.tensor()
        return dice.choice(
            (
                one,
                f"{one} * {self.number()}",
                f"{one} + {self.number()}",
                f"({one} - {self.tensor()}) * {self.number()}",
                f"{one}.{dice.choice(UNARY)}()",
                f"{self.number()} * {one} + {self.tensor()}",
                f"{one} / ({self.tensor()}.abs() + 1.5)",
                f"{one}.add({self.tensor()}, alpha={self.number()})",
                f"{one}.clamp(min={self.number()})",
                f"T.where({one} {dice.choice(COMPARED)} {self.number()}, {one}, {self.number()})",
                f"T.full_like({one}, {self.number()})",
                f"{one}.sum() * {self.number()}",
                f"{one}.mean(-1, keepdim=True) + {one}",
                f"{one}.masked_fill({one} > 0, {self.number()})",
                f"{one}.lerp({self.tensor()}, {self.number()})",
                f"T.full({list(self.shape)}, {self.number()})",
                f"T.rand_like({one}) * {self.number()}",
                f"{one}.pow({self.number()})",
                f"{one}.to(T.float64) * {self.number()}",
                f"T.tensor({self.number()}) * {one}",
                f"{one}.detach() * {self.number()}",
                f"{one}.softmax(-1) * {self.number()}",
                f"{one}.cumsum(0)",
                f"S.net({one}) * {self.number()}",
            )
        )

    def target(self) -> str:
        """Return what is written: a tensor or a view of one."""
        dice, one = self.dice, self.tensor()
        if dice.random() < 0.65:
            return one
        return one + dice.choice(
            (
                *("[0]", "[..., :1]", "[1:]", ".reshape(-1)", ".view(-1)", ".detach()", ".data"),
                *("[::2]", "[..., -1]", ".transpose(0, -1)", ".unsqueeze(0)", ".flatten()[1:3]"),
                *(".narrow(0, 0, 1)", ".chunk(2)[0]", ".diagonal(0, 0, -1)", ".unbind(0)[-1]"),
            )
        )

    def write(self) -> str:
        """Return a statement that writes in place."""
        dice, into = self.dice, self.target()
        k = self.number()
        return dice.choice(
            (
                f"{into}.mul_({k})",
                f"{into}.fill_({k})",
                f"{into}.add_({k})",
                f"{into}.sub_({self.tensor()} * {k})",
                f"{into}.add_({self.tensor()}, alpha={k})",
                f"{into}.sub_({self.tensor()}, alpha={k})",
                f"{into}.div_({k})",
                f"{into}.copy_({self.value()})",
                f"{into}.copy_({self.tensor()})",
                f"{into}.zero_()",
                f"{into}.{dice.choice(IN_PLACE)}()",
                f"{into}.clamp_(min={k})",
                f"{into}.clamp_({k}, {self.number()})",
                f"{into}.lerp_({self.tensor()}, {k})",
                f"{into}.addcmul_({self.tensor()}, {self.tensor()}, value={k})",
                f"{into}.addcdiv_({self.tensor()}, {self.tensor()}.abs() + 1, value={k})",
                f"{into}.masked_fill_({into} > 0.25, {k})",
                f"{into}[...] = {k}",
                f"{into}[0] = {k}",
                f"{into}[0] *= {k}",
                f"{into}[...] = {self.value()}",
                f"{into}[1:] += {k}",
                f"{into}.pow_({k})",
                f"{into}.mul_({self.tensor()})",
                f"T.add({self.tensor()}, {k}, out={into})",
                f"T.mul({self.tensor()}, {self.tensor()}, out={into})",
                f"T._foreach_mul_([{into}, {self.tensor()}], {k})",
                f"{into}.set_({self.tensor()} * {k})"
                if dice.random() < 0.1
                else f"{into}.mul_({k})",
                f"{into}.index_fill_(0, T.tensor([0]), {k})",
                f"{into}.fill_diagonal_({k})",
                f"{into}.relu_().mul_({k}).add_({self.number()})",
            )
        )

    def statement(self) -> None:
        """Add what a function does next."""
        chance = self.dice.random()
        if chance < 0.5:
            self.guarded(self.write())
        elif chance < 0.7:
            self.add(f"x{self.made} = {self.value()}")
            self.tensors.append(f"x{self.made}")
            self.made += 1
        elif chance < 0.75:
            self.add(f"n{self.made} = {self.number()}")
            self.numbers.append(f"n{self.made}")
            self.made += 1
        elif chance < 0.85:
            self.branch()
        elif chance < 0.9:
            self.optimizer_by_hand()
        elif chance < 0.93:
            self.add("S.net.count += 1")
        elif chance < 0.95:
            self.own_backward()
        else:
            self.add(self.idle_effect())

    def idle_effect(self) -> str:
        """Return a statement that mostly has nothing to do, because all is already so."""
        dice, one, k = self.dice, self.tensor(), self.number()
        return dice.choice(
            (
                *(f"{one}.grad = None", f"{one}.grad = {one}.grad", "S.net.zero_grad()"),
                *("S.net.zero_grad(set_to_none=False)", "S.optimizer.step()"),
                f"S.optimizer.zero_grad(set_to_none={dice.random() < 0.5})",
                f"T.nn.utils.clip_grad_norm_(S.net.parameters(), abs({k}) + 0.1)",
                "T.nn.utils.clip_grad_value_(S.net.parameters(), 0.25)",
                f"{one}.detach().add_(0 if {one}.grad is None else {one}.grad)",
                f"{one}.grad = {one}.detach() * 0.5",
                *(f"{one}.requires_grad_(False)", f"{one}.requires_grad_({one}.requires_grad)"),
                *("S.net.requires_grad_()", f"{one}.detach_()", "S.net.eval()", "S.net.train()"),
                *("S.rate = 0.3", "S.count = 3", "S.net.rate = 0.5", "S.rate = abs(S.rate)"),
                *("S.rate = max(S.rate, 0.1)", "S.count = int(S.count)", "S.rate = S.rate * 1"),
                *("S.net.table['scale'] = 1.25", "S.net.table['many'][1] = 0.75"),
                *("S.net.table.pop('none', None)", "S.net.table.setdefault('scale', 2)"),
                *("S.held = S.held", "S.held = S.other", "S.held.data = S.other"),
                *("S.other.set_(S.held)", "S.held.data = S.held.data", f"{one}.data = {one}.data"),
                *("S.moment['m'] = S.moment['m']", "S.moment.update(m=S.moment['m'])"),
                *("S.net.double()", "S.net.float()", f"{one}.resize_({one}.shape)"),
                "(S.net.bias._backward_hooks or {}).clear()",
                *("box['k'] = box['k']", f"box['k'] = {k}", "box.pop('none', None)"),
                *("box['many'][0] = box['many'][0]", "box['many'].sort(key=id)"),
                *("S.names.clear()", "S.names.add('one')", "S.names.discard('two')"),
                *("S.log.clear()", "S.log.extend([])", "S.log[:] = [1]", "S.log.reverse()"),
                "S.optimizer.param_groups[0]['lr'] = 0.1",
                "S.optimizer.state.clear()",
                "T.set_grad_enabled(T.is_grad_enabled())",
                f"{one}.retain_grad() if {one}.requires_grad else None",
            )
        )

    def guarded(self, line: str) -> None:
        """Add a write, mostly where a parameter may be written."""
        if self.dice.random() < 0.7:
            self.add("with T.no_grad():")
            line = "    " + line
        self.add(line)

    def branch(self) -> None:
        dice = self.dice
        one, other = self.tensor(), self.tensor()
        asked = dice.choice(
            (
                f"{dice.choice(self.numbers)} > {dice.choice(('1', '0.5', '3'))}",
                f"{one} is {other}",
                f"{one}.shape[0] > 3",
                f"{one}.requires_grad",
                "T.is_grad_enabled()",
                "S.net.training",
                f"{one}.is_contiguous()",
                f"{one}.dtype == T.float32",
                f"isinstance({dice.choice(self.numbers)}, int)",
                "len(box['many']) > 1",
                f"{one}.grad is None",
                f"{one}.shape == {other}.shape",
            )
        )
        self.add(f"if {asked}:")
        self.depth += 1
        self.guarded(self.write())
        self.depth -= 1
        if dice.random() < 0.5:
            self.add("else:")
            self.depth += 1
            self.guarded(self.write())
            self.depth -= 1

    def optimizer_by_hand(self) -> None:
        """Add a step of SGD with momentum, of Adam, or of an average, written by hand."""
        dice, p, g = self.dice, self.tensor(), self.tensor()
        k, m = self.number(), self.number()
        self.add("with T.no_grad():")
        kind = dice.choice(("sgd", "adam", "average"))
        if kind == "sgd":
            self.add(f"    S.moment['m'].mul_({m}).add_({g})")
            self.add(f"    {p}.add_(S.moment['m'], alpha=-{k})")
        elif kind == "adam":
            self.add(f"    S.moment['m'].mul_(0.9).add_({g}, alpha=1 - 0.9)")
            self.add(f"    S.moment['v'].mul_({m}).addcmul_({g}, {g}, value=1 - {m})")
            self.add(
                f"    {p}.addcdiv_(S.moment['m'], S.moment['v'].abs().sqrt().add_(1e-8), value=-{k})"
            )
        else:
            self.add(f"    {p}.lerp_({g}, 1 - {k})")

    def own_backward(self) -> None:
        """Add a backward pass within the function, and mostly a step after it."""
        dice = self.dice
        x = self.tensor()
        if dice.random() < 0.5:
            self.add(f"S.optimizer.zero_grad(set_to_none={dice.random() < 0.5})")
        self.add("with T.enable_grad():" if dice.random() < 0.7 else "if T.is_grad_enabled():")
        self.add(f"    loss = (S.net({x}.detach()) * {self.number()}).square().mean()")
        self.add("    loss.backward()")
        after = dice.choice(("optimizer", "by hand", "clip", "scale", "nothing"))
        if after == "optimizer":
            self.add("S.optimizer.step()")
        elif after != "nothing":
            self.add("with T.no_grad():")
            self.add(
                {
                    "by hand": f"    S.net.weight.sub_(S.net.weight.grad * {self.number()})",
                    "clip": f"    T.nn.utils.clip_grad_norm_(S.net.parameters(), {self.number()})",
                    "scale": f"    S.net.weight.grad.mul_({self.number()})",
                }[after]
            )
        if dice.random() < 0.3:
            self.add("S.net.weight.grad = None")

    def result(self) -> str:
        dice = self.dice
        return dice.choice(
            (
                f"{self.tensor()} * {self.number()}",
                "a",
                "None",
                f"({self.tensor()}, {self.value()})",
                f"{{'t': {self.tensor()}, 'n': {self.number()}}}",
                f"[{self.value()}, {self.number()}, {self.value()}]",
                f"{self.target()}",
                f"({self.value()}).sum()",
                f"({self.tensor()}, {self.tensor()})",
                f"({self.value()}).sum().item()",
            )
        )

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
        call.update(pair=pair, extra="", mode="", thread=False, backward=backward)
        call.update(by_name=False, order="abxm")
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
        elif kind == "thread":
            call["thread"] = True
        elif kind == "names":
            call["by_name"] = True
        elif kind == "nesting":
            one = self.tensor_text(self.shape, self.float, start)
            call["many"] = dice.choice((f"[{one}, {one}]", f"({one},)", f"[{one}, 0.5]", f"{one}"))
        elif kind == "inferred":
            call[place] = f"inferred(lambda: {call[place]})"
        elif kind == "graded" and place != "many":
            call[place] = f"graded({call[place]})"
        elif kind == "history":
            self.history(place, call)
        else:
            call["before"] = self.outside()

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
            )
        )


# What a call gives -> how a function has it.
NAMES = {"k": "k", "m": "m", "box_k": "box['k']", "pair": "box['pair'][1]"}
STATE_NUMBERS = (
    *("S.rate = {0}", "S.net.rate = {0}", "S.net.table['scale'] = {0}"),
    *("S.net.table['many'][1] = {0}", "S.optimizer.param_groups[0]['lr'] = abs({0})"),
    *("S.count = int({0} * 8)", "S.rate = {0}", "S.count, S.rate = 3, {0}"),
)
CHANGES = (
    *("number", "number", "number", "shape", "sizes", "sizes", "dtype", "layout", "grad"),
    *("alias", "alias", "alias", "mode", "mode", "thread", "names", "nesting", "outside"),
    *("outside", "outside", "history", "history", "graded", "inferred"),
)
MODES = (
    *("T.no_grad()", "T.no_grad()", "T.inference_mode()", "T.inference_mode()", "T.enable_grad()"),
    *("T.device('meta')", "default_dtype(T.float64)", "T.autocast('cpu', dtype=T.bfloat16)"),
)


def program_text(seed: int, attempt: int = 0) -> str:
    """Return the text of a seed's program, or of another one where that says too little."""
    return Writer(f"{seed}, again {attempt}" if attempt else seed).text()
