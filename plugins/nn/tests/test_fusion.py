"""Layers fused with batch normalizations, and other conversions of modules."""

import pytest

import tangrad
from tangrad import nn
from tangrad.nn.utils import convert_conv2d_weight_memory_format, skip_init


def numbers(framework, *shape):
    count = 1
    for size in shape:
        count *= size
    values = framework.arange(count, dtype=framework.float64)
    return (values**2 * 0.7 + 0.3).sin().reshape(shape).to(framework.float32)


def filled(framework, module):
    with framework.no_grad():
        for name, tensor in module.state_dict().items():
            if tensor.is_floating_point():
                values = numbers(framework, *tensor.shape)
                tensor.copy_(values.abs() + 0.5 if name == "running_var" else values)
    return module.eval()


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", ["Conv1d", "Conv2d", "ConvTranspose2d"])
def test_fused_convolutions_agree_with_both_layers(agree, kind, bias, affine):
    def program(framework):
        dims = int(kind[-2])
        layer = filled(framework, getattr(framework.nn, kind)(3, 4, 2, bias=bias))
        kind_of_norm = getattr(framework.nn, f"BatchNorm{dims}d")
        norm = filled(framework, kind_of_norm(4, affine=affine))
        fuse = framework.nn.utils.fuse_conv_bn_eval
        fused = fuse(layer, norm, transpose="Transpose" in kind)
        x = numbers(framework, 2, 3, *[5] * dims)
        same = bool(framework.allclose(fused(x), norm(layer(x)), atol=1e-5))
        assert same
        required = [p.requires_grad for p in fused.parameters()]
        return [fused(x), required, fused is layer, repr(fused), fused.state_dict()]

    agree(program)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("features", [4, 1])
def test_fused_linear_layers_agree(agree, features, bias):
    def program(framework):
        layer = filled(framework, framework.nn.Linear(3, 4, bias=bias))
        norm = filled(framework, framework.nn.BatchNorm1d(features))
        fused = framework.nn.utils.fuse_linear_bn_eval(layer, norm)
        return [fused(numbers(framework, 2, 3)), fused.state_dict()]

    agree(program)


FUSION_REFUSED = {
    "training": lambda f: f.nn.utils.fuse_conv_bn_eval(f.nn.Conv1d(1, 2, 1), f.nn.BatchNorm1d(2)),
    "no statistics": lambda f: f.nn.utils.fuse_linear_bn_eval(
        f.nn.Linear(1, 2).eval(), f.nn.BatchNorm1d(2, track_running_stats=False).eval()
    ),
    "sizes": lambda f: f.nn.utils.fuse_linear_bn_eval(
        f.nn.Linear(1, 2).eval(), f.nn.BatchNorm1d(3).eval()
    ),
}


@pytest.mark.parametrize("case", FUSION_REFUSED)
def test_fusion_refusals_agree(agree, case):
    agree(FUSION_REFUSED[case], message=False)


@pytest.mark.parametrize("dims", [2, 3])
def test_weights_in_another_memory_format_agree(agree, dims):
    def program(framework):
        layers = [
            getattr(framework.nn, f"{kind}{dims}d")(4, 3, size)
            for kind in ("Conv", "ConvTranspose")
            for size in (1, 3)
        ]
        module = framework.nn.Sequential(*layers, framework.nn.Linear(2, 2))
        values = [p.detach().clone() for p in module.parameters()]
        convert = getattr(framework.nn.utils, f"convert_conv{dims}d_weight_memory_format")
        memory_format = {2: framework.channels_last, 3: framework.channels_last_3d}[dims]
        same = convert(module, memory_format) is module
        kept = [bool((a == b).all()) for a, b in zip(values, module.parameters(), strict=True)]
        return [same, kept, [list(p.stride()) for p in module.parameters()]]

    agree(program)


def test_a_layer_by_itself_is_converted_and_stays_a_parameter():
    layer = nn.Conv2d(4, 3, 2)
    weight = layer.weight
    convert_conv2d_weight_memory_format(layer, tangrad.channels_last)
    assert layer.weight is weight
    assert weight.is_contiguous(memory_format=tangrad.channels_last)


def test_skipping_initial_values():
    module = skip_init(nn.Linear, 5, out_features=2, dtype=tangrad.float64)
    assert module.weight.device.type == "cpu"
    assert [tuple(p.shape) for p in module.parameters()] == [(2, 5), (2,)]
    assert module.weight.dtype == tangrad.float64
    assert module.weight.requires_grad
    assert skip_init(nn.Linear, 2, 2, device="meta").weight.is_meta


@pytest.mark.parametrize("case", ["no module", "no device"])
def test_refusals_of_skipping_agree(agree, case):
    def program(framework):
        kind = {"no module": dict, "no device": framework.nn.ReLU}[case]
        framework.nn.utils.skip_init(kind)

    agree(program)


# Containers ---------------------------------------------------------------------------------------


def test_data_parallel_agrees(agree):
    def program(framework):
        inner = filled(framework, framework.nn.Linear(3, 4))
        module = framework.nn.DataParallel(inner, dim=0)
        module(numbers(framework, 2, 3)).sum().backward()
        return [module(numbers(framework, 2, 3)), repr(module), module.state_dict()] + [
            inner.weight.grad,
            module.module is inner,
        ]

    agree(program)


def test_data_parallel_as_a_function_calls_the_module():
    inner = nn.Bilinear(3, 2, 4)
    inputs = numbers(tangrad, 2, 3), numbers(tangrad, 2, 2)
    expected = inner(*inputs)
    assert (nn.parallel.data_parallel(inner, inputs) == expected).all()
    keywords = {"input2": inputs[1]}
    found = nn.parallel.data_parallel(inner, inputs[0], module_kwargs=keywords)
    assert (found == expected).all()


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_container_agrees(agree):
    def program(framework):
        module = framework.nn.Container(b=framework.nn.ReLU(), a=framework.nn.Linear(1, 2))
        return [repr(module), list(module.state_dict()), [n for n, _ in module.named_children()]]

    agree(program)


def test_container_warns_who_makes_or_subclasses_it():
    with pytest.warns(FutureWarning, match="Subclass that instead"):
        nn.Container()
    with pytest.warns(FutureWarning, match="Subclass that instead"):
        type("Mine", (nn.Container,), {})


def test_compile_keeps_what_the_module_does():
    module = nn.Linear(2, 2)
    x = tangrad.ones(1, 2)
    before = module(x)
    assert module.compile(disable=True) is None
    assert (module(x) == before).all()
    assert "forward" not in vars(module)


def test_compile_calls_what_the_compiler_returns(monkeypatch):
    def compiler(function, **options):
        return lambda *args: (options, function(*args))

    monkeypatch.setattr(tangrad, "compile", compiler)
    module = nn.Identity()
    hooked = []
    module.register_forward_hook(lambda module, args, result: hooked.append(args))
    module.compile(mode="fast")
    assert module(3) == ({"mode": "fast"}, 3)
    assert hooked == [(3,)]


# Older names of calls -----------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_stateless_call_agrees(agree):
    def program(framework):
        module = filled(framework, framework.nn.Linear(3, 4))
        values = {"weight": framework.ones(4, 3)}
        call = framework.nn.utils.stateless.functional_call
        found = call(module, values, numbers(framework, 2, 3))
        return [found, module.weight, list(values)]

    agree(program)


def test_a_call_hands_back_what_the_module_assigned(agree):
    def program(framework):
        class Counts(framework.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("count", framework.zeros(()))

            def forward(self, x):
                self.count = self.count + 1
                return x + self.count

        module = Counts()
        values = {"count": framework.full((), 5.0)}
        found = framework.func.functional_call(module, values, framework.ones(()))
        return [found, module.count, values]

    agree(program)


def test_the_stateless_call_warns():
    with pytest.warns(FutureWarning, match="Please use `torch.func.functional_call`"):
        nn.utils.stateless.functional_call(nn.ReLU(), {}, tangrad.ones(1))
    assert nn.utils.stateless._functional_call(nn.ReLU(), {}, -tangrad.ones(1)).item() == 0


def test_batch_normalizations_without_statistics_agree(agree):
    def program(framework):
        norms = [framework.nn.BatchNorm1d(3), framework.nn.InstanceNorm1d(3)]
        norms[1].track_running_stats = True
        module = framework.nn.Sequential(*norms, framework.nn.Linear(2, 2))
        same = framework.func.replace_all_batch_norm_modules_(module) is module
        return [same, repr(module), list(module.state_dict()), module[0].running_mean is None]

    agree(program)
