"""A linear layer and its ReLU with a quantized weight, whose input is quantized in each call."""

from tangrad_quantization.nn.quantized import dynamic as nnqd

__all__ = ["LinearReLU"]


class LinearReLU(nnqd.Linear):
    """A linear layer and a ReLU with a weight of qint8 or float16."""

    _name = "DynamicQuantizedLinearReLU"
    _relu = True
