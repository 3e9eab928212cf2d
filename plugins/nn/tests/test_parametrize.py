"""Parametrized tensors: the attribute, what it is made of, and the way back."""

import copy
import pickle

import pytest

import tangrad
from tangrad import nn
from tangrad.nn.utils import parametrize


def numbers(framework, *shape, **options):
    count = 1
    for size in shape:
        count *= size
    values = framework.arange(count, dtype=framework.float64)
    return (values**2 * 0.7 + 0.3).sin().reshape(shape).to(options.get("dtype", framework.float32))


def layer(framework, rows=4, columns=3):
    module = framework.nn.Linear(columns, rows)
    with framework.no_grad():
        module.weight.copy_(numbers(framework, rows, columns))
        module.bias.copy_(numbers(framework, rows))
    return module


def functions(framework):
    """Return classes of parametrizations for one of the frameworks."""

    class Symmetric(framework.nn.Module):
        def forward(self, x):
            return x.triu() + x.triu(1).transpose(-1, -2)

        def right_inverse(self, x):
            return x.triu()

    class Doubled(framework.nn.Module):
        def forward(self, x):
            return 2 * x

    class Sum(framework.nn.Module):
        def forward(self, a, b):
            return a + b

        def right_inverse(self, x):
            return 0.25 * x, 0.75 * x

    class Wider(framework.nn.Module):
        def forward(self, x):
            return framework.cat([x, x])

    class Converts(framework.nn.Module):
        def forward(self, x):
            return x.double()

    class NoTensor(framework.nn.Module):
        def forward(self, x):
            return "no tensor"

    return {cls.__name__: cls for cls in (Symmetric, Doubled, Sum, Wider, Converts, NoTensor)}


def described(module):
    gradients = {n: p.grad for n, p in module.named_parameters() if p.grad is not None}
    return [repr(module), module.state_dict(), gradients, type(module).__name__]


@pytest.mark.parametrize("names", [["Symmetric"], ["Sum"], ["Symmetric", "Doubled"]])
def test_value_gradients_and_state_agree(agree, names):
    def program(framework):
        module = layer(framework, 3, 3)
        for name in names:
            made = functions(framework)[name]()
            returned = framework.nn.utils.parametrize.register_parametrization(
                module, "weight", made
            )
            assert returned is module
        result = module(numbers(framework, 2, 3))
        result.pow(2).sum().backward()
        return [result, module.weight, *described(module)]

    agree(program)


@pytest.mark.parametrize("leave", [True, False])
@pytest.mark.parametrize("names", [["Symmetric"], ["Sum"], ["Symmetric", "Doubled"]])
def test_removal_agrees(agree, names, leave):
    def program(framework):
        tools = framework.nn.utils.parametrize
        module = layer(framework, 3, 3)
        before = module.weight
        for name in names:
            tools.register_parametrization(module, "weight", functions(framework)[name]())
        tools.remove_parametrizations(module, "weight", leave_parametrized=leave)
        same = module.weight is before
        return [same, tools.is_parametrized(module), module.weight.requires_grad] + described(
            module
        )

    agree(program)


@pytest.mark.parametrize("name", ["Symmetric", "Sum", "Doubled"])
def test_assignment_agrees(agree, name):
    def program(framework):
        module = layer(framework, 3, 3)
        framework.nn.utils.parametrize.register_parametrization(
            module, "weight", functions(framework)[name]()
        )
        module.weight = numbers(framework, 3, 3) ** 2
        return described(module)

    agree(program)


@pytest.mark.parametrize("unsafe", [True, False])
@pytest.mark.parametrize("first", [None, "Doubled"])
@pytest.mark.parametrize("name", ["Wider", "Converts", "NoTensor"])
def test_changes_of_dtype_and_shape_agree(agree, name, first, unsafe):
    def program(framework):
        module = layer(framework, 3, 3)
        register = framework.nn.utils.parametrize.register_parametrization
        if first:
            register(module, "weight", functions(framework)[first]())
        register(module, "weight", functions(framework)[name](), unsafe=unsafe)
        return module.weight

    agree(program, message=False)


REFUSED = {
    "no such tensor": lambda f, m: f.nn.utils.parametrize.register_parametrization(
        m, "weights", functions(f)["Doubled"]()
    ),
    "not parametrized": lambda f, m: f.nn.utils.parametrize.remove_parametrizations(m, "weight"),
    "no functions": lambda f, m: f.nn.utils.parametrize.ParametrizationList([], m.weight),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_agree(agree, case):
    agree(lambda framework: REFUSED[case](framework, layer(framework)))


def test_buffers_and_several_tensors_agree(agree):
    def program(framework):
        tools = framework.nn.utils.parametrize
        module = framework.nn.BatchNorm1d(3)
        for name in ("weight", "running_var"):
            tools.register_parametrization(module, name, functions(framework)["Doubled"]())
        found = [tools.is_parametrized(module, n) for n in ("weight", "bias", "running_var", None)]
        kind = tools.type_before_parametrizations(module).__name__
        tools.remove_parametrizations(module, "weight")
        return [found, kind, *described(module)]

    agree(program)


@pytest.mark.parametrize("name", ["Symmetric", "Sum"])
def test_transfer_agrees(agree, name):
    def program(framework):
        tools = framework.nn.utils.parametrize
        source, target = layer(framework, 3, 3), framework.nn.Linear(3, 3)
        tools.register_parametrization(source, "weight", functions(framework)[name]())
        with framework.no_grad():
            target.bias.zero_()
        tools.transfer_parametrizations_and_params(source, target)
        return described(target)

    agree(program)


def test_within_cached_a_tensor_is_computed_once():
    module = parametrize.register_parametrization(
        layer(tangrad), "weight", functions(tangrad)["Doubled"]()
    )
    with parametrize.cached():
        assert module.weight is module.weight
        with parametrize.cached():
            inner = module.weight
        assert module.weight is inner
    assert module.weight is not module.weight


def test_copies_are_independent_and_pickling_is_refused():
    module = parametrize.register_parametrization(
        layer(tangrad), "weight", functions(tangrad)["Doubled"]()
    )
    copied = copy.deepcopy(module)
    with tangrad.no_grad():
        copied.parametrizations.weight.original.zero_()
    assert not copied.weight.any()
    assert module.weight.all()
    with pytest.raises(RuntimeError, match="state_dict"):
        pickle.dumps(module)


def test_a_second_instance_of_the_class_is_not_parametrized():
    one, other = layer(tangrad), layer(tangrad)
    parametrize.register_parametrization(one, "weight", functions(tangrad)["Doubled"]())
    assert isinstance(other.weight, nn.Parameter)
    assert isinstance(one, nn.Linear)


# Orthogonal ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("trivialized", [True, False])
@pytest.mark.parametrize("shape", [(3, 3), (5, 3), (3, 5)])
@pytest.mark.parametrize("name", ["matrix_exp", "cayley", "householder", None])
def test_orthogonal_weights_agree(agree, name, shape, trivialized):
    def program(framework):
        module = layer(framework, *shape)
        framework.nn.utils.parametrizations.orthogonal(
            module, orthogonal_map=name, use_trivialization=trivialized
        )
        inner = module.parametrizations.weight
        with framework.no_grad():
            if shape[0] != shape[1] and trivialized:
                # Completed by random numbers, which differ: but for them, a fixed matrix.
                inner[0].base.copy_(framework.eye(5).flip(0))
            inner.original.add_(0.1 * numbers(framework, *shape).tril(-1))
        weight = module.weight
        (weight * numbers(framework, *shape)).sum().backward()
        short = weight if shape[0] <= shape[1] else weight.T
        unit = short @ short.T - framework.eye(3)
        return [weight, bool(unit.abs().max() < 1e-5), *described(module)]

    agree(program, tolerance=1e-4)


def test_orthogonal_weights_keep_their_value_and_can_be_assigned():
    module = nn.utils.parametrizations.orthogonal(nn.Linear(5, 3))
    wanted = nn.init.orthogonal_(tangrad.empty(3, 5))
    module.weight = wanted
    tangrad.testing.assert_close(module.weight, wanted, check_layout=False)


ORTHOGONAL_REFUSED = {
    "unknown map": lambda f: f.nn.utils.parametrizations.orthogonal(layer(f), "weight", "magic"),
    "private map": lambda f: f.nn.utils.parametrizations.orthogonal(layer(f), "weight", "none"),
    "vector": lambda f: f.nn.utils.parametrizations.orthogonal(layer(f), "bias"),
    "missing": lambda f: f.nn.utils.parametrizations.orthogonal(layer(f), "weights"),
    "complex": lambda f: f.nn.utils.parametrizations.orthogonal(
        f.nn.Linear(2, 2, dtype=f.complex64), orthogonal_map="householder"
    ),
}


@pytest.mark.parametrize("case", ORTHOGONAL_REFUSED)
def test_orthogonal_refusals_agree(agree, case):
    agree(ORTHOGONAL_REFUSED[case])


def test_complex_weights_become_unitary():
    module = nn.utils.parametrizations.orthogonal(nn.Linear(3, 3, dtype=tangrad.complex64))
    weight = module.weight
    tangrad.testing.assert_close(
        weight.mH @ weight, tangrad.eye(3, dtype=tangrad.complex64), check_layout=False
    )


# Weight norm, spectral norm -----------------------------------------------------------------------


@pytest.mark.parametrize("dim", [0, 1, -2, None])
@pytest.mark.parametrize("newer", [True, False])
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_weight_norm_agrees(agree, newer, dim):
    def program(framework):
        utils = framework.nn.utils
        norm = utils.parametrizations.weight_norm if newer else utils.weight_norm
        module = norm(layer(framework), dim=dim)
        with framework.no_grad():
            for parameter in module.parameters():
                parameter.mul_(1.5)
        result = module(numbers(framework, 2, 3))
        result.pow(2).sum().backward()
        found = [result, *described(module)]
        if not newer:
            utils.remove_weight_norm(module)
            found += [module.weight.requires_grad, list(module.state_dict())]
        return found

    agree(program, tolerance=1e-4)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_the_newer_weight_norm_loads_states_of_the_older():
    old = nn.utils.weight_norm(layer(tangrad))
    new = nn.utils.parametrizations.weight_norm(nn.Linear(3, 4))
    new.load_state_dict(old.state_dict())
    tangrad.testing.assert_close(new.weight, old.weight)


def test_the_older_weight_norm_warns():
    with pytest.warns(FutureWarning, match="weight_norm"):
        nn.utils.weight_norm(layer(tangrad))


def with_fixed_vectors(framework, module, newer):
    with framework.no_grad():
        holder = module.parametrizations.weight[0] if newer else module
        names = ("_u", "_v") if newer else ("weight_u", "weight_v")
        for name in names:
            vector = getattr(holder, name)
            vector.copy_(framework.nn.functional.normalize(numbers(framework, len(vector)), dim=0))
    return module


@pytest.mark.parametrize("kind", ["Linear", "Conv1d", "ConvTranspose2d"])
@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("newer", [True, False])
def test_spectral_norm_agrees(agree, newer, steps, kind):
    def program(framework):
        utils = framework.nn.utils
        norm = utils.parametrizations.spectral_norm if newer else utils.spectral_norm
        size = () if kind == "Linear" else (2,)
        module = getattr(framework.nn, kind)(3, 4, *size)
        with framework.no_grad():
            for parameter in module.parameters():
                parameter.copy_(numbers(framework, *parameter.shape))
        module = with_fixed_vectors(framework, norm(module, n_power_iterations=steps), newer)
        shape = {"Linear": (2, 3), "Conv1d": (2, 3, 4), "ConvTranspose2d": (2, 3, 4, 4)}[kind]
        first = module(numbers(framework, *shape))
        second = module(numbers(framework, *shape))
        (first + second).pow(2).sum().backward()
        module.eval()
        found = [first, second, module(numbers(framework, *shape)), *described(module)]
        if not newer:
            utils.remove_spectral_norm(module)
            found += [list(module.state_dict()), len(module._state_dict_hooks)]
        return found

    agree(program, tolerance=1e-4)


def test_spectral_norm_loads_states_without_version(agree):
    def program(framework):
        utils = framework.nn.utils
        module = with_fixed_vectors(framework, utils.spectral_norm(layer(framework)), False)
        state = module.state_dict()
        state["weight"] = state["weight_orig"] / 1.7
        del state["weight_v"]
        state._metadata[""]["spectral_norm"] = {}
        target = utils.spectral_norm(layer(framework))
        target.load_state_dict(state)
        return target.eval()(numbers(framework, 2, 3))

    agree(program, tolerance=1e-4)


NORMS_REFUSED = {
    "no steps": lambda f: f.nn.utils.spectral_norm(layer(f), n_power_iterations=0),
    "no steps, newer": lambda f: f.nn.utils.parametrizations.spectral_norm(
        layer(f), n_power_iterations=0
    ),
    "no such dimension": lambda f: f.nn.utils.parametrizations.spectral_norm(layer(f), dim=2),
    "twice": lambda f: f.nn.utils.spectral_norm(f.nn.utils.spectral_norm(layer(f))),
    "no weight norm": lambda f: f.nn.utils.remove_weight_norm(layer(f)),
    "no spectral norm": lambda f: f.nn.utils.remove_spectral_norm(layer(f)),
    "missing": lambda f: f.nn.utils.parametrizations.spectral_norm(layer(f), "weights"),
}


@pytest.mark.parametrize("case", NORMS_REFUSED)
def test_refusals_of_norms_agree(agree, case):
    agree(NORMS_REFUSED[case])


def test_after_removal_of_the_spectral_norm_a_plain_state_loads():
    module = nn.utils.remove_spectral_norm(nn.utils.spectral_norm(nn.Linear(3, 4)))
    plain = layer(tangrad)
    module.load_state_dict(plain.state_dict())
    assert (module.weight == plain.weight).all()


@pytest.mark.parametrize("newer", [True, False])
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_norms_of_vectors_agree(agree, newer):
    def program(framework):
        utils = framework.nn.utils
        norm = utils.parametrizations.weight_norm if newer else utils.weight_norm
        module = norm(layer(framework), "bias", 0)
        if newer:
            module = utils.parametrizations.spectral_norm(module, "weight", eps=1e-6)
            one = utils.parametrizations.spectral_norm(layer(framework), "bias")
            return [module.bias, one.bias, one.state_dict()]
        return [module.bias, module.state_dict()]

    agree(program)
