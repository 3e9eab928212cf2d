"""Shapes that vary, told by tensors or found from several examples, beside PyTorch's."""

import pytest
import torch

import tangrad

SIDES = (torch, tangrad)


def model_of(side):
    class Net(side.nn.Module):
        def forward(self, pair, scale):
            first, second = pair["first"], pair["second"]
            return first @ second * scale, first.sum(0)

    return Net()


def arguments(side, rows=4, columns=3):
    pair = {"first": side.ones(rows, 5), "second": side.ones(5, columns)}
    return (pair,), {"scale": side.ones(())}


@pytest.mark.parametrize("side", SIDES)
def test_shapes_are_told_by_tensors(side):
    args, kwargs = arguments(side)
    shapes = side.export.ShapesCollection()
    shapes[args[0]["first"]] = (side.export.Dim("rows", min=2, max=100), None)
    assert shapes[kwargs["scale"]] == {}
    assert len(shapes) == 2
    program = side.export.export(model_of(side), args, kwargs, dynamic_shapes=shapes)
    args, kwargs = arguments(side, rows=7)
    product, total = program.module()(*args, **kwargs)
    assert tuple(product.shape) == (7, 3)
    assert total.tolist() == [7.0] * 5


@pytest.mark.parametrize("side", SIDES)
def test_what_differs_among_examples_varies(side):
    inputs = side.export.AdditionalInputs()
    for rows, columns in ((6, 3), (9, 8)):
        inputs.add(*arguments(side, rows, columns))
    args, kwargs = arguments(side)
    program = side.export.export(model_of(side), args, kwargs, dynamic_shapes=inputs)
    inputs.verify(program)
    args, kwargs = arguments(side, rows=11, columns=2)
    assert tuple(program.module()(*args, **kwargs)[0].shape) == (11, 2)
    inputs.add(*arguments(side, rows=2))
    inputs.verify(program)
    wrong = {"first": side.ones(4, 6), "second": side.ones(6, 3)}
    inputs.add((wrong,), {"scale": side.ones(())})
    with pytest.raises((RuntimeError, AssertionError)):
        inputs.verify(program)


def test_bad_input_is_named():
    args, kwargs = arguments(tangrad)
    module = model_of(tangrad)
    shapes = tangrad.export.ShapesCollection()
    shapes[tangrad.ones(2, 9)] = (tangrad.export.Dim("rows"), None)
    with pytest.raises(ValueError, match=r"shapes \[2, 9\] are not among"):
        shapes.dynamic_shapes(module, args, kwargs)
    first = args[0]["first"]
    shapes[first] = (None, None)
    with pytest.raises(ValueError, match="were given"):
        shapes[first] = (tangrad.export.Dim("rows"), None)
    with pytest.raises(TypeError, match="got list"):
        shapes[[1]] = None
    inputs = tangrad.export.AdditionalInputs()
    with pytest.raises(TypeError, match="expected a tuple and a dict"):
        inputs.add([1])
    for other, says in (
        (({"first": tangrad.ones(4, 5)},), "structure"),
        (({"first": tangrad.ones(4), "second": tangrad.ones(5, 3)},), r"\[4, 5\], \[4\]"),
        (({"first": 3, "second": tangrad.ones(5, 3)},), "no tensor"),
    ):
        inputs = tangrad.export.AdditionalInputs()
        inputs.add(other, kwargs)
        with pytest.raises(ValueError, match=says):
            inputs.dynamic_shapes(module, args, kwargs)
