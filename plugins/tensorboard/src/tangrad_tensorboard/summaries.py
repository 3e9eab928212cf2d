"""The messages that TensorBoard's plugins read: one `Summary` with one value each.

Field numbers are of TensorFlow's `summary.proto`, `tensor.proto` and TensorBoard's
`plugin_data.proto` and `layout.proto`.
"""

from __future__ import annotations

import io
import json
import wave
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import tangrad
from tangrad_tensorboard import pictures, proto

_FLOAT, _DOUBLE, _STRING = 1, 2, 7  # DataType of tensor.proto
_TENSOR_TYPES = {"float32": _FLOAT, "float64": _DOUBLE, "int32": 3, "uint8": 4, "int64": 9}
_HPARAM_STRING, _HPARAM_BOOL, _HPARAM_FLOAT = 1, 2, 3
_SUCCESS = 1
_HISTOGRAM_STEP, _HISTOGRAM_RANGE = 1.1, (1e-12, 1e20)


def array(values: Any) -> Any:
    """Return a tensor, array, number or list of them as a NumPy array."""
    if isinstance(values, tangrad.Tensor):
        plain = values.detach().cpu().resolve_conj().resolve_neg()
        return (plain.float() if plain.dtype == tangrad.bfloat16 else plain).numpy()
    if isinstance(values, (list, tuple)):
        return np.array([array(v) for v in values])
    return np.asarray(values)


def number(value: Any) -> float:
    """Return the one number that `value` holds.

    Raises:
        ValueError: it holds none, or several.
    """
    found = array(value).squeeze()
    if found.ndim:
        raise ValueError(f"add_scalar: one number is expected, got shape {tuple(found.shape)}")
    return float(found)


def _summary(tag: str, *fields: bytes) -> bytes:
    return proto.data(1, b"".join([proto.data(1, tag), *fields]))


def _plugin(name: str, content: bytes = b"") -> bytes:
    return proto.data(9, proto.data(1, proto.data(1, name) + proto.data(2, content)))


def _tensor(values: Any) -> bytes:
    """Return the field of a tensor: of an array of numbers, or of a list of bytes."""
    if isinstance(values, list):
        shape: Sequence[int] = (len(values),)
        fields = [proto.data(8, value) for value in values]
        kind = _STRING
    else:
        shape = values.shape
        fields = [proto.data(4, np.ascontiguousarray(values).tobytes())]
        kind = _TENSOR_TYPES[values.dtype.name]
    sizes = b"".join(proto.data(2, proto.integer(1, size)) for size in shape)
    return proto.data(8, b"".join([proto.integer(1, kind), proto.data(2, sizes), *fields]))


def scalar(tag: str, value: float, new_style: bool, double_precision: bool) -> bytes:
    """A number: as a field of its own, or as the tensor that newer readers expect."""
    if not new_style and not double_precision:
        return _summary(tag, proto.single(2, value))
    kind = np.float64 if double_precision else np.float32
    return _summary(tag, _tensor(np.array(value, kind)), _plugin("scalars"))


def tensor(tag: str, value: Any) -> bytes:
    """A tensor as it is."""
    values = array(value)
    if values.dtype.name not in _TENSOR_TYPES:
        raise ValueError(f"add_tensor: dtype {values.dtype} cannot be written; convert it")
    return _summary(tag, _tensor(values), _plugin("tensor"))


def text(tag: str, value: str) -> bytes:
    """A text, which is shown as Markdown."""
    return _summary(f"{tag}/text_summary", _plugin("text"), _tensor([value.encode()]))


def usual_limits() -> Any:
    """Return limits that grow by a tenth, as TensorFlow's, on both sides of zero."""
    low, high = _HISTOGRAM_RANGE
    limits = []
    while low < high:
        limits.append(low)
        low *= _HISTOGRAM_STEP
    return np.array([-limit for limit in reversed(limits)] + [0.0] + limits)


def histogram(tag: str, values: Any, bins: Any, max_bins: int | None) -> bytes:
    """How often values fall between limits."""
    flat = array(values).reshape(-1)
    flat = flat.astype(np.float64) if flat.dtype.kind != "f" else flat
    if not flat.size:
        raise ValueError("add_histogram: the tensor has no elements")
    if not np.isfinite(flat).all():
        raise ValueError("add_histogram: the values are not all finite; a histogram has no place")
    counts, limits = np.histogram(flat, usual_limits() if bins == "tensorflow" else bins)
    if max_bins is not None and len(counts) > max_bins:
        joined = -(-len(counts) // max_bins)
        counts = np.add.reduceat(counts, np.arange(0, len(counts), joined))
        limits = np.append(limits[:-1:joined], limits[-1])
    filled = np.flatnonzero(counts)
    if not filled.size:
        raise ValueError("add_histogram: no value lies within the bins")
    start, end = int(filled[0]), int(filled[-1]) + 1
    # An empty bucket in front tells where the first one begins.
    head = counts[start - 1 : end] if start else np.concatenate([[0], counts[:end]])
    wide = flat.astype(np.float64)
    return raw_histogram(
        tag,
        float(flat.min()),
        float(flat.max()),
        flat.size,
        float(flat.sum()),
        float(wide @ wide),
        limits[start : end + 1],
        head,
    )


def raw_histogram(
    tag: str,
    low: float,
    high: float,
    count: float,
    total: float,
    squares: float,
    limits: Any,
    counts: Any,
) -> bytes:
    """A histogram that the program has computed."""
    figures = [
        proto.double(i, float(x)) for i, x in enumerate((low, high, count, total, squares), 1)
    ]
    buckets = [proto.doubles(6, map(float, limits)), proto.doubles(7, map(float, counts))]
    return _summary(tag, proto.data(5, b"".join(figures + buckets)))


def image(tag: str, pixels: Any, encoded: bytes | None = None) -> bytes:
    """A picture (height, width, channels) of bytes.

    Args:
        tag: its name.
        pixels: the picture, or the first of an animation.
        encoded: the file, if it is not to be the PNG of `pixels`.
    """
    height, width, channels = pixels.shape
    fields = [proto.integer(1, height), proto.integer(2, width), proto.integer(3, channels)]
    fields.append(proto.data(4, encoded or pictures.png(pixels[None])))
    return _summary(tag, proto.data(4, b"".join(fields)))


def video(tag: str, values: Any, fps: float) -> bytes:
    """Videos (N, T, C, H, W) side by side, as an animated PNG."""
    if values.ndim != 5:
        raise ValueError(f"add_video: shape (N, T, C, H, W) is expected, got {values.shape}")
    moving = pictures.to_bytes(values).transpose(1, 0, 2, 3, 4)
    frames = np.stack([pictures.arranged(frame, "NCHW") for frame in moving])
    return image(tag, frames[0], pictures.png(frames, fps))


def audio(tag: str, values: Any, sample_rate: int) -> bytes:
    """Sound of one channel, numbers from -1 to 1, as a WAV file of 16 bits."""
    samples = np.clip(np.asarray(values, np.float64).reshape(-1), -1, 1)
    stream = io.BytesIO()
    with wave.open(stream, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(int(sample_rate))
        out.writeframes((samples * 32767).astype("<i2").tobytes())
    fields = [proto.single(1, sample_rate), proto.integer(2, 1), proto.integer(3, samples.size)]
    fields += [proto.data(4, stream.getvalue()), proto.data(5, "audio/wav")]
    return _summary(tag, proto.data(6, b"".join(fields)))


def pr_curve(tag: str, labels: Any, predictions: Any, thresholds: int, weights: Any) -> bytes:
    """Precision and recall at thresholds from 0 to 1."""
    labels = labels.reshape(-1).astype(np.float64)
    weights = np.ones(labels.size) if weights is None else array(weights).reshape(-1)
    buckets = np.floor(predictions.reshape(-1) * (thresholds - 1)).astype(np.int64)
    positive = np.bincount(buckets, weights * labels, thresholds)
    negative = np.bincount(buckets, weights * (1 - labels), thresholds)
    true_positive = np.cumsum(positive[::-1])[::-1]
    false_positive = np.cumsum(negative[::-1])[::-1]
    tiny = 1e-7
    rows = [
        true_positive,
        false_positive,
        false_positive[0] - false_positive,
        true_positive[0] - true_positive,
        true_positive / np.maximum(tiny, true_positive + false_positive),
        true_positive / np.maximum(tiny, true_positive[0]),
    ]
    return raw_pr_curve(tag, np.stack(rows), thresholds)


def raw_pr_curve(tag: str, rows: Any, thresholds: int) -> bytes:
    """A curve of six rows: true, false positives; true, false negatives; precision, recall."""
    content = proto.integer(1, 0) + proto.integer(2, thresholds)
    return _summary(tag, _tensor(rows.astype(np.float32)), _plugin("pr_curves", content))


def _value(value: Any) -> bytes:
    """Return a `google.protobuf.Value` of a bool, number or text."""
    if isinstance(value, bool):
        return proto.integer(4, value)
    return proto.data(3, value) if isinstance(value, str) else proto.double(2, float(value))


def hparams(
    values: Mapping[str, Any], metrics: Sequence[str], discrete: Mapping[str, Sequence[Any]]
) -> list[bytes]:
    """The three summaries of a run with hyperparameters: experiment, start and end."""
    plain = {name: _hparam(name, value) for name, value in values.items()}
    infos = b""
    for name, value in plain.items():
        kind = _HPARAM_STRING if isinstance(value, str) else _HPARAM_FLOAT
        kind = _HPARAM_BOOL if isinstance(value, bool) else kind
        info = proto.data(1, name) + proto.integer(4, kind)
        if name in discrete:
            info += proto.data(5, b"".join(proto.data(1, _value(v)) for v in discrete[name]))
        infos += proto.data(4, info)
    for name in metrics:
        infos += proto.data(5, proto.data(1, proto.data(2, name)))
    entries = [proto.data(1, name) + proto.data(2, _value(value)) for name, value in plain.items()]
    start = b"".join(proto.data(1, entry) for entry in entries)
    contents = {
        "_hparams_/experiment": proto.data(2, infos),
        "_hparams_/session_start_info": proto.data(3, start),
        "_hparams_/session_end_info": proto.data(4, proto.integer(1, _SUCCESS)),
    }
    return [_summary(tag, _plugin("hparams", content)) for tag, content in contents.items()]


def _hparam(name: str, value: Any) -> bool | float | str:
    if isinstance(value, (bool, str)):
        return value
    try:
        return number(value)
    except (TypeError, ValueError):
        raise ValueError(
            f"add_hparams: {name!r} has to be a bool, a number, a text or a tensor of one number, "
            f"got {type(value).__name__}"
        ) from None


def layout(categories: Mapping[str, Mapping[str, Sequence[Any]]]) -> bytes:
    """A page of charts: {category: {title: [kind, tags]}}, the kinds "Multiline" and "Margin"."""
    encoded = b""
    for category, charts in categories.items():
        body = b""
        for title, (kind, tags) in charts.items():
            if kind not in ("Multiline", "Margin"):
                raise ValueError(
                    f"add_custom_scalars: the chart {title!r} has to be 'Multiline' or 'Margin', "
                    f"got {kind!r}"
                )
            if kind == "Multiline":
                chart = proto.data(2, b"".join(proto.data(1, tag) for tag in tags))
            else:
                series = b"".join(proto.data(i, tag) for i, tag in enumerate(tags[:3], 1))
                chart = proto.data(3, proto.data(1, series))
            body += proto.data(2, proto.data(1, title) + chart)
        encoded += proto.data(2, proto.data(1, category) + body)
    return _summary("custom_scalars__config__", _tensor([encoded]), _plugin("custom_scalars"))


def config(values: Mapping[str, Any]) -> str:
    """Return a text-format protocol buffer of texts, lists of numbers and messages."""
    lines = []
    for key, value in values.items():
        if isinstance(value, dict):
            lines += [f"{key} {{", *(f"  {line}" for line in config(value).splitlines()), "}"]
        else:
            lines += [
                f"{key}: {json.dumps(v)}" for v in (value if isinstance(value, list) else [value])
            ]
    return "\n".join(lines)
