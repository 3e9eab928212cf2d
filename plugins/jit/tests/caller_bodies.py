# ruff: noqa: E501 - the texts of programs' lines break badly
"""What the functions of random programs do: `caller_programs.py` has their callers."""

from __future__ import annotations

import random

from caller_surroundings import QUESTIONS

SHAPES = ((4,), (2, 3), (3, 4), (5,), (6, 2), (1, 4), (2, 3, 2), (16, 33), (2, 3, 2, 2))
FLOATS = ("float32", "float32", "float32", "float64", "float64", "bfloat16", "float16")
OTHER_DTYPES = ("float64", "float32", "int64", "int32", "float16", "uint8", "bool", "bfloat16")
INTEGERS = ("int8", "uint8", "int32", "int64", "bool")
LAYOUTS = ("turned", "strided", "spread", "plain", "shifted", "last", "own")
NUMBERS = {
    "float": ("0.1", "0.25", "-1.5", "3.7", "0.9", "2.125", "-0.3", "1e-3", "7.5", "0.6"),
    "int": ("2", "3", "-2", "5", "7", "4", "11", "-3"),
    "odd": (
        *("0", "1", "-1", "0.0", "-0.0", "1.0", "-1.0", "2.0", "0.5", "True", "False", "1e30"),
        *("1e-30", "1e300", "1e-310", "2**31", "2**40", "-(2**63)", "2**63 - 1", "2**63"),
        *("1e39", "-1e39", "7e4", "300", "-129", "1e38", "300.5"),
        *("numpy.float64(0.4)", "numpy.float32(0.4)", "numpy.int64(3)", "numpy.bool_(True)"),
        *("Grade.TWO", "Real(0.4)", "Fraction(1, 3)", "T.tensor(True)", "T.tensor([0.5])"),
        *(
            "T.tensor(2.0, requires_grad=True)",
            "T.tensor(1j)",
            "numpy.array(0.4)",
            "numpy.uint8(7)",
        ),
        *("T.tensor(0.4)", "T.tensor(3)", "T.tensor(0.4, dtype=T.float64)", "None", "'text'", "1j"),
        *('float("nan")', 'float("inf")', '-float("inf")', "2**200", "16777217", "3 + 0j"),
    ),
}
UNARY = ("sin", "tanh", "abs", "square", "sigmoid", "neg", "relu", "exp", "clone", "floor")
IN_PLACE = ("sin_", "tanh_", "neg_", "abs_", "relu_", "sigmoid_", "zero_", "square_", "round_")
COMPARED = ("<", ">", "<=", "==", "!=")


# Numbers that are asked of what is around a function, or that change by being asked.
ASKED = (
    *("chance.random()", "numpy.random.rand()", "next(STEPS)", "S.rate_of(k)", "len(S.log)"),
    *("S.step()", "a.shape[0]", "a.numel()", "S.half_rate", "getattr(S, 'rate')", "sum(S.log)"),
    *("vars(S)['rate']", "globals()['FACTOR']", "max(k, m)", "float(a.sum())", "int(a.argmax())"),
    *(
        "a._version",
        "len(box)",
        "T.get_num_threads()",
        "a.stride(0)",
        "S.optimizer.param_groups[0]['lr']",
    ),
    *(
        "a.storage_offset()",
        "len(S.names)",
        "(k if k > m else m)",
        "round(k, 1)",
        "T.initial_seed() % 7",
    ),
)


class Body:
    """Writes one program.

    Attributes:
        lines: of the function's body. tensors, numbers: the names that it may use.
    """

    def __init__(self, seed: int | str) -> None:
        self.seed = seed
        self.dice = random.Random(seed)
        self.shape = self.dice.choice(SHAPES)
        self.float = self.dice.choice(FLOATS)
        self.lines: list[str] = []
        self.depth = 1
        self.made = 0
        self.tensors = ["a", "b", "box['x']", "box['many'][0]", "S.held", "S.other"]
        self.tensors += ["S.net.weight", "S.net.running", "S.moment['m']", "S.moment['v']"]
        self.numbers = ["k", "m", "k", "m", "box['k']", "box['pair'][1]", "S.rate", "S.count"]
        self.tensors += ["S.stored[-1]", "box['point'].t", "box['record'].t"]
        self.numbers += ["S.net.rate", "S.net.table['scale']", "S.net.table['many'][1]"]
        self.numbers += ["FACTOR", "TABLE['k']", "box['point'].k", "box['record'].k"]
        if self.dice.random() < 0.15:
            self.numbers += self.dice.sample(ASKED, 8)
        # Programs that use little pass through more stages than those that use everything.
        keep = self.dice.choice((2, 3, 4, 10))
        self.tensors = ["a", *self.dice.sample(self.tensors[1:], keep - 1)]
        self.numbers = ["k", *self.dice.sample(self.numbers[1:], self.dice.choice((1, 2, 8)))]
        self.few = keep < 10

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

    def other_value(self) -> str:
        """Return an expression that calls more than ops of elements."""
        dice, one, k = self.dice, self.tensor(), self.number()
        return dice.choice(
            (
                *(f"{one}.conj()", f"T.view_as_real({one}.to(T.complex64)).sum(-1)"),
                *(f"T.bucketize({one}, S.row.flatten().sort()[0])", f"{one} * WEAK()"),
                *(f"SquareOf.apply({one}) * {k}", f"{one}.unflatten(0, (1, -1)).squeeze(0)"),
                *(f"T.nn.functional.normalize({one}, dim=0)", f"T.linalg.vector_norm({one}) * {k}"),
                *(f"{one}.nonzero().sum() * {k}", f"{one}[{one} > 0]", f"T.unique({one})"),
                *(f"{one} * FACTOR", f"helper({one}, {k})", f"helper({one})", f"{one} * kept"),
                *(f"S.inner({one}, {k})", f"S.inner({one})", f"C(helper)({one}, {k})"),
                f"T.vmap(lambda q: q * {k})({one})",
                f"T.func.grad(lambda q: (q * q * {k}).sum())({one})",
                f"T.func.jvp(lambda q: q * {k}, ({one},), ({self.tensor()},))[1]",
                f"T.func.functional_call(S.net, {{'weight': {one}}}, ({self.tensor()},))",
                f"T.utils.checkpoint.checkpoint(helper, {one}, {k}, use_reentrant=False)",
                *(f"cast({one}, {self.tensor()})", f"cast({one}, S.net.weight) * {k}"),
                *("T.rand(SHAPE, generator=S.generator)", f"T.randn_like({one}) * {k}"),
                f"T.nn.functional.dropout({one}, 0.5, S.net.training) * {k}",
                *(f"T.bernoulli({one}.sigmoid())", "T.randperm(SHAPE[0])"),
                *(f"{one}[: abs(int({k})) % 3 + 1].sum()", f"{one}.roll(int({k}), 0)"),
                f"T.cat([{one}, {self.tensor()}])[: SHAPE[0]] * {k}",
                f"T.stack([{one}, {self.tensor()}]).sum(0)",
                *(f"{one}.to({self.tensor()}.dtype)", f"{one}.type_as({self.tensor()}) * {k}"),
                *(f"{one}.new_full({one}.shape, {k})", f"T.empty_like({one}).copy_({one})"),
                f"({one}.unsqueeze(-1) @ {one}.unsqueeze(-2)).sum(-1) * {k}",
                *(
                    f"{one}.amax(-1)",
                    f"{one}.argmax()",
                    f"{one}.sort(-1)[0]",
                    f"{one}.logsumexp(0)",
                ),
                *(f"{one}.contiguous()", f"{one}.expand(2, *{one}.shape)", f"{one}.var(-1) * {k}"),
                "sum(box['many'])",
                f"T.nn.functional.layer_norm({one}, SHAPE[-1:]) * {k}",
                f"{one}.index_select(0, T.tensor([0, 0])) * {k}",
                f"{one}.scatter_add(0, T.zeros({one}.shape, dtype=T.int64), {self.tensor()})",
                f"T.where({one} > {k}, {self.tensor()}, TABLE['k'])",
            )
        )

    def value(self) -> str:
        """Return an expression of tensors."""
        dice, one = self.dice, self.tensor()
        if dice.random() < 0.2:
            return self.other_value()
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
        elif chance < 0.91:
            self.add("S.net.count += 1")
        elif chance < 0.93:
            self.own_backward()
        elif chance < 0.97:
            self.block()
        else:
            self.add(self.idle_effect())

    def block(self) -> None:
        """Add a loop, a `try`, an error, a mode, or a name that is bound anew."""
        dice, k = self.dice, self.number()
        into = dice.choice((f"q.mul_({k})", f"q.add_({k})", "q.sin_()", f"q.copy_({self.value()})"))
        head = dice.choice(
            (
                *(f"for i in range(abs(int({k})) % 3):", "for i in range(len(box['many'])):"),
                *("for q in S.net.parameters():", "for q in box['many']:"),
                *("for q in (a, b):", "for name, q in S.net.named_buffers():"),
                *("try:", "try:", f"if {k} > 2:", f"if ({self.tensor()}).sum() > 0:"),
                *("with T.random.fork_rng():", "with T.enable_grad():", "with T.inference_mode():"),
                *("with T.autocast('cpu', dtype=T.bfloat16):", "name"),
            )
        )
        if head == "name":
            one = f"({self.value()}).detach()"
            self.add(
                dice.choice(
                    (
                        *("FACTOR = FACTOR + 0.5", "FACTOR = 1.5", f"kept = {k}", "kept += 1"),
                        *(
                            "TABLE['k'] = TABLE['k']",
                            f"TABLE['k'] = {k}",
                            f"S.stored.append({one})",
                        ),
                        *(f"S.stored = [{one}]", f"S.stored[-1] = {one}", f"S.held = {one}"),
                        *(f"box['many'].append({one})", f"box['new'] = {one}", "del box['x']"),
                        *(f"S.net.last = {one}", f"S.net.running = {one}", "S.log.append(1)"),
                    )
                )
            )
            return
        self.add(head)
        self.depth += 1
        raised = f"raise Stop({k})" if dice.random() < 0.5 else f"raise Stop({self.number()} > 1)"
        if " q in" in head:
            self.guarded(into)
        elif head.startswith("if"):
            self.guarded(self.write())
            self.add(raised)
        else:
            self.guarded(self.write())
        if head == "try:":
            self.add(f"if {k} > {dice.choice(('0', '1', '3'))}:")
            self.add(f"    {raised}")
            self.depth -= 1
            self.add(dice.choice(("except Stop:", "finally:")))
            self.depth += 1
            self.guarded(self.write())
        self.depth -= 1

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
                f"{one}.sum() > {dice.choice(self.numbers)}",
                f"isinstance({one}, Own)",
                "TABLE['t'] is None",
                "'new' in box",
                *(asked.format(one=one, other=other) for asked in dice.sample(QUESTIONS, 5)),
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
