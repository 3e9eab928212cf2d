"""Event files, read back by a reader of their own; numbers as PyTorch writes them."""

import io
import pickle
import struct
import wave
import zlib

import numpy as np
import pytest

import tangrad
from tangrad import nn
from tangrad.utils.tensorboard import FileWriter, SummaryWriter


def castagnoli(data):
    """The checksum bit by bit, from its definition."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = castagnoli(data)
    return ((crc >> 15 | crc << 17 & 0xFFFFFFFF) + 0xA282EAD8) % 2**32


def records(path):
    data = path.read_bytes()
    while data:
        (size,) = struct.unpack("<Q", data[:8])
        content = data[12 : 12 + size]
        assert struct.unpack("<I", data[8:12])[0] == masked(data[:8])
        if size < 5000:  # bit by bit is slow
            assert struct.unpack("<I", data[12 + size : 16 + size])[0] == masked(content)
        yield message(content)
        data = data[16 + size :]


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return value, at


def message(data):
    """Return {field: [raw values]} of a message."""
    fields, at = {}, 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        else:
            if key & 7 == 2:
                size, at = varint(data, at)
            else:
                size = {1: 8, 5: 4}[key & 7]
            value, at = data[at : at + size], at + size
        fields.setdefault(key >> 3, []).append(value)
    return fields


def double(field):
    return struct.unpack(f"<{len(field[0]) // 8}d", field[0])


@pytest.fixture
def board(tmp_path):
    return SummaryWriter(tmp_path)


def values(board, folder=None):
    """Return (step, fields of the value) of everything in the main file."""
    board.flush()
    (path,) = (folder or board_path(board)).glob("events.*")
    first, *events = records(path)
    assert first[3] == [b"brain.Event:2"]
    found = []
    for event in events:
        assert double(event[1])[0] > 1e9
        (value,) = message(event[5][0])[1]
        found.append((event.get(2, [None])[0], message(value)))
    return found


def board_path(board):
    import pathlib

    return pathlib.Path(board.get_logdir())


def only(board):
    ((_, value),) = values(board)
    return value


def test_scalars_of_all_styles(board):
    board.add_scalar("loss", tangrad.tensor([0.1], requires_grad=True), 3)
    board.add_scalar("loss", 1e300, 4)
    board.add_scalar("loss", np.float64(0.1), -1, new_style=True)
    board.add_scalar("loss", 0.1, double_precision=True)
    plain, large, new, wide = values(board)
    assert (plain[0], plain[1][1], plain[1][2]) == (3, [b"loss"], [struct.pack("<f", 0.1)])
    assert large[1][2] == [struct.pack("<f", float("inf"))]
    assert new[0] == 2**64 - 1
    assert message(new[1][8][0])[4] == [struct.pack("<f", 0.1)]
    assert message(message(new[1][9][0])[1][0])[1] == [b"scalars"]
    assert (wide[0], message(wide[1][8][0])[4]) == (None, [struct.pack("<d", 0.1)])


def test_a_scalar_has_one_element(board):
    with pytest.raises(ValueError, match="shape"):
        board.add_scalar("x", tangrad.ones(2))


def test_scalars_of_one_chart_have_files_of_their_own(board, tmp_path):
    board.add_scalars("a/b", {"x": 1.0, "y": 2.0}, 5)
    for name, number in (("x", 1.0), ("y", 2.0)):
        ((step, value),) = values(board, tmp_path / f"a_b_{name}")
        assert (step, value[1], value[2]) == (5, [b"a/b"], [struct.pack("<f", number)])
    assert len(board.all_writers) == 3


@pytest.mark.parametrize("bins", ["tensorflow", "auto", 7, [-2.0, 0.0, 0.5, 9.0]], ids=str)
@pytest.mark.parametrize("max_bins", [None, 3])
def test_histograms_count_every_value(board, bins, max_bins):
    x = tangrad.randn(500, generator=tangrad.Generator().manual_seed(1)).clamp(-1.9, 8)
    board.add_histogram("h", x, 1, bins=bins, max_bins=max_bins)
    found = message(only(board)[5][0])
    limits, counts = double(found[6]), double(found[7])
    assert len(limits) == len(counts)
    assert sum(counts) == 500
    assert double(found[3]) == (500.0,)
    assert double(found[1]) + double(found[2]) == (x.min().item(), x.max().item())
    assert double(found[4])[0] == pytest.approx(x.sum().item(), rel=1e-4)
    assert double(found[5])[0] == pytest.approx((x * x).sum().item(), rel=1e-4)
    wide = x.double().numpy()
    for low, high, count in zip(limits, limits[1:], counts[1:], strict=False):
        last = high == limits[-1]
        assert count == ((wide >= low) & ((wide <= high) if last else (wide < high))).sum()


@pytest.mark.parametrize("x", [tangrad.empty(0), tangrad.tensor([1.0, float("nan")])], ids=str)
def test_a_histogram_of_nothing_is_refused(board, x):
    with pytest.raises(ValueError, match="add_histogram"):
        board.add_histogram("h", x)


def decoded(png):
    """Return the pixels of a PNG as this module writes it."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    at, chunks = 8, []
    while at < len(png):
        (size,) = struct.unpack(">I", png[at : at + 4])
        kind, content = png[at + 4 : at + 8], png[at + 8 : at + 8 + size]
        assert struct.unpack(">I", png[at + 8 + size : at + 12 + size])[0] == zlib.crc32(
            kind + content
        )
        chunks.append((kind, content))
        at += 12 + size
    parts = dict(chunks)
    width, height, depth, color = struct.unpack(">IIBB", parts[b"IHDR"][:10])
    assert depth == 8
    channels = {0: 1, 2: 3, 4: 2, 6: 4}[color]
    lines = np.frombuffer(zlib.decompress(parts[b"IDAT"]), np.uint8).reshape(height, -1)
    assert not lines[:, 0].any()
    return lines[:, 1:].reshape(height, width, channels), [kind for kind, _ in chunks]


@pytest.mark.parametrize("formats", ["CHW", "HWC", "HW", "NCHW", "NHWC", "WHC"])
def test_images_in_every_order(board, formats):
    sizes = {"N": 10, "C": 3, "H": 4, "W": 5}
    x = tangrad.rand([sizes[letter] for letter in formats])
    board.add_image("i", x, dataformats=formats)
    found = message(only(board)[4][0])
    pixels, _ = decoded(found[4][0])
    assert (found[1], found[2], found[3]) == tuple([n] for n in pixels.shape)
    whole = np.einsum(f"{formats.lower()}->{''.join(sorted(formats.lower()))}", x.numpy())
    expected = (whole * 255).astype(np.uint8)
    if "N" in formats:
        assert pixels.shape == (8, 40, 3)
        assert (pixels[4:, 5:10] == expected.transpose(2, 1, 3, 0)[9].transpose(0, 1, 2)).all()
        assert not pixels[4:, 10:].any()
    else:
        order = [sorted(formats).index(letter) for letter in "HWC" if letter in formats]
        assert (pixels.squeeze() == expected.transpose(order)).all()


@pytest.mark.parametrize(
    ("shape", "formats"), [((3, 4, 5), "HW"), ((3, 4), "CX"), ((7, 4, 5), "CHW"), ((3, 3), "HH")]
)
def test_images_of_other_shapes_are_refused(board, shape, formats):
    with pytest.raises(ValueError, match="format|channels"):
        board.add_image("i", tangrad.rand(*shape), dataformats=formats)


def test_a_video_is_an_animation(board):
    board.add_video("v", tangrad.rand(2, 3, 1, 4, 5), 1, fps=10)
    pixels, kinds = decoded(message(only(board)[4][0])[4][0])
    assert pixels.shape == (4, 10, 1)
    assert kinds == [b"IHDR", b"acTL", b"fcTL", b"IDAT", *[b"fcTL", b"fdAT"] * 2, b"IEND"]


def test_sound_is_a_wave_file(board):
    board.add_audio("s", tangrad.tensor([0.0, 1.0, -2.0]), sample_rate=8000)
    found = message(only(board)[6][0])
    with wave.open(io.BytesIO(found[4][0])) as sound:
        assert sound.getframerate() == 8000
        assert struct.unpack("<3h", sound.readframes(3)) == (0, 32767, -32767)
    assert (found[2], found[3], found[5]) == ([1], [3], [b"audio/wav"])


def test_a_figure_is_drawn(board):
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="the figure is matplotlib's")
    figure = pyplot.figure(figsize=(2, 1), dpi=50)
    board.add_figure("f", figure)
    assert decoded(message(only(board)[4][0])[4][0])[0].shape == (50, 100, 3)
    assert not pyplot.fignum_exists(figure.number)


def test_texts_and_tensors(board):
    board.add_text("t", "**höher**", 2)
    board.add_tensor("x", tangrad.arange(6, dtype=tangrad.int32).reshape(2, 3))
    (step, text), (_, x) = values(board)
    assert (step, text[1], message(text[8][0])[8]) == (
        2,
        [b"t/text_summary"],
        ["**höher**".encode()],
    )
    found = message(x[8][0])
    assert found[4] == [struct.pack("<6i", *range(6))]
    assert [message(size)[1] for size in message(found[2][0])[2]] == [[2], [3]]
    with pytest.raises(ValueError, match="complex"):
        board.add_tensor("c", tangrad.ones(1, dtype=tangrad.complex64))


def test_a_curve_of_precision_and_recall(board):
    labels, scores = tangrad.tensor([0, 1, 1, 0]), tangrad.tensor([0.1, 0.4, 0.9, 0.6])
    board.add_pr_curve("p", labels, scores, num_thresholds=3)
    found = only(board)
    table = np.frombuffer(message(found[8][0])[4][0], np.float32).reshape(6, 3)
    assert table[:4].tolist() == [[2, 1, 0], [2, 1, 0], [0, 1, 2], [0, 1, 2]]
    assert table[4:].tolist() == [[0.5, 0.5, 0.0], [1.0, 0.5, 0.0]]


def test_hyperparameters_and_what_they_reached(board, tmp_path):
    chosen = {"lr": 0.1, "deep": True, "name": "a", "n": tangrad.tensor(3)}
    board.add_hparams(chosen, {"acc": 0.9}, {"name": ["a", "b"]}, run_name="run")
    experiment, start, end, metric = (value for _, value in values(board, tmp_path / "run"))
    plugins = [message(message(v[9][0])[1][0]) for v in (experiment, start, end)]
    assert {name for plugin in plugins for name in plugin[1]} == {b"hparams"}
    entries = [message(entry) for entry in message(message(plugins[1][2][0])[3][0])[1]]
    assert [entry[1][0].decode() for entry in entries] == list(chosen)
    assert [message(entry[2][0]) for entry in entries] == [
        {2: [struct.pack("<d", 0.1)]},
        {4: [1]},
        {3: [b"a"]},
        {2: [struct.pack("<d", 3.0)]},
    ]
    assert metric[1] == [b"acc"]
    with pytest.raises(TypeError):
        board.add_hparams([], {})
    with pytest.raises(ValueError, match="'x'"):
        board.add_hparams({"x": None}, {})


def test_other_loggers_write_hyperparameters_themselves(board):
    from tangrad.utils.tensorboard.summary import hparams

    for summary in hparams({"lr": 0.1}, {"acc": 0.0}):
        board._get_file_writer().add_summary(summary)
    names = ["experiment", "session_start_info", "session_end_info"]
    told = [value[1][0].decode() for _, value in values(board)]
    assert told == [f"_hparams_/{name}" for name in names]
    with pytest.raises(TypeError, match="mappings"):
        hparams({"lr": 0.1})


def test_a_page_of_charts(board):
    board.add_custom_scalars({"c": {"both": ["Multiline", ["a", "b"]], "m": ["Margin", "xyz"]}})
    (page,) = message(only(board)[8][0])[8]
    (category,) = message(page)[2]
    lines, margin = map(message, message(category)[2])
    assert (lines[1], message(lines[2][0])[1]) == ([b"both"], [b"a", b"b"])
    assert message(message(margin[3][0])[1][0]) == {1: [b"x"], 2: [b"y"], 3: [b"z"]}
    with pytest.raises(ValueError, match="Pie"):
        board.add_custom_scalars({"c": {"t": ["Pie", []]}})


def test_a_graph_has_the_layers_and_what_flows_between(board, tmp_path):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Linear(2, 3), nn.Linear(2, 3), nn.Linear(6, 1)

        def forward(self, x):
            return self.c(tangrad.cat([self.a(x).relu(), self.b(x) * 2], 1))

    model = Net()
    board.add_graph(model, tangrad.ones(1, 2))
    assert model.training
    assert not any(module._forward_hooks for module in model.modules())
    board.flush()
    (path,) = tmp_path.glob("events.*")
    graph = message(list(records(path))[1][4][0])
    nodes = {}
    for raw in graph[1]:
        node = message(raw)
        nodes[node[1][0].decode()] = {source.decode() for source in node.get(3, [])}
    assert nodes == {
        "input/0": set(),
        "Net/a": {"input/0"},
        "Net/b": {"input/0"},
        "Net/c": {"Net/a", "Net/b"},
        "output": {"Net/c"},
    }
    with pytest.raises(ValueError, match="input_to_model"):
        board.add_graph(model)


def test_points_for_the_projector(board, tmp_path):
    images = tangrad.rand(3, 3, 4, 5)
    board.add_embedding(tangrad.eye(3), ["a", "b\tb", "c"], images, global_step=7, tag="t")
    board.add_embedding(tangrad.eye(2), [["a", 1], ["b", 2]], metadata_header=["x", "y"])
    folder = tmp_path / "00007" / "t"
    assert (folder / "tensors.tsv").read_text().splitlines()[1] == "0.0\t1.0\t0.0"
    assert (folder / "metadata.tsv").read_text() == "a\nb b\nc\n"
    assert decoded((folder / "sprite.png").read_bytes())[0].shape == (8, 10, 3)
    config = (tmp_path / "projector_config.pbtxt").read_text()
    assert config.count("embeddings {") == 2
    assert "single_image_dim: 5\n    single_image_dim: 4" in config
    with pytest.raises(ValueError, match="labels"):
        board.add_embedding(tangrad.eye(3), ["a"])


def test_files_are_flushed_closed_and_opened_again(tmp_path):
    with SummaryWriter(tmp_path, max_queue=2) as board:
        (path,) = tmp_path.glob("events.*")
        for step in range(4):
            board.add_scalar("x", step, step)
        assert len(list(records(path))) >= 4  # the queue was full once
    assert len(list(records(path))) == 5
    board.add_scalar("x", 5.0)
    board.close()
    assert len(list(tmp_path.glob("events.*"))) == 2
    assert isinstance(board.file_writer, FileWriter)


def test_a_purge_and_a_default_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with SummaryWriter(comment="-try", purge_step=4, filename_suffix=".x"):
        pass
    (path,) = tmp_path.glob("runs/*-try/events.*.x")
    _, purge = records(path)
    assert (purge[2], message(purge[7][0])) == ([4], {1: [1]})


@pytest.mark.parametrize("kind", [SummaryWriter, FileWriter])
def test_pickles_name_what_was_in_the_core_as_before(kind):
    assert kind.__module__ == "tangrad.utils.tensorboard"
    assert b"tangrad_tensorboard" not in pickle.dumps(kind)
    name = b"ctangrad.utils.tensorboard\n" + kind.__name__.encode() + b"\n"
    assert pickle.loads(b"\x80\x02" + name + b".") is kind
