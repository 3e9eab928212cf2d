"""The writer that programs use."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Mapping, Sequence
from math import ceil, sqrt
from typing import Any

import numpy as np

from tangrad_tensorboard import pictures, proto, summaries
from tangrad_tensorboard.events import FileWriter
from tangrad_tensorboard.graph import graph_of

_START = 1  # SessionLog.SessionStatus.START: what has a later step is purged
_PROJECTOR = "projector_config.pbtxt"


class SummaryWriter:
    """Write event files that TensorBoard shows.

    Args:
        log_dir: directory; `runs/<date>_<host><comment>` by default.
        comment: end of the default directory's name.
        purge_step: events of this step and later, of an earlier file, are not to be shown.
        max_queue: number of events that may wait to be written out.
        flush_secs: seconds that they may wait.
        filename_suffix: added to the names of files.
    """

    def __init__(
        self,
        log_dir: str | os.PathLike[str] | None = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: float = 120,
        filename_suffix: str = "",
    ) -> None:
        if not log_dir:
            stamp = time.strftime("%b%d_%H-%M-%S")
            log_dir = os.path.join("runs", f"{stamp}_{socket.gethostname()}{comment}")
        self.log_dir = os.fspath(log_dir)
        self.purge_step = purge_step
        self._options = (max_queue, flush_secs, filename_suffix)
        self._embeddings: list[str] = []
        self._writers: dict[str, FileWriter] = {}
        writer = self._writer()
        if purge_step is not None:
            writer._write(proto.data(7, proto.integer(1, _START)), purge_step, None)

    @property
    def file_writer(self) -> FileWriter:
        """The writer of the main file."""
        return self._writer()

    @property
    def all_writers(self) -> dict[str, FileWriter]:
        """The writers of all files, by directory."""
        return self._writers

    def _writer(self, below: str = "") -> FileWriter:
        path = os.path.join(self.log_dir, below) if below else self.log_dir
        if path not in self._writers:
            self._writers[path] = FileWriter(path, *self._options)
        return self._writers[path]

    _get_file_writer = _writer  # by which other loggers write summaries that they made

    def _add(self, summary: bytes, step: int | None, walltime: float | None) -> None:
        self._writer().add_summary(summary, step, walltime)

    def get_logdir(self) -> str:
        """Return the directory."""
        return self.log_dir

    def flush(self) -> None:
        """Write out what waits."""
        for writer in self._writers.values():
            writer.flush()

    def close(self) -> None:
        """Write out what waits and close the files; a later event opens others."""
        for writer in self._writers.values():
            writer.close()

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def add_scalar(
        self,
        tag: str,
        scalar_value: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        new_style: bool = False,
        double_precision: bool = False,
    ) -> None:
        """Add a number.

        Args:
            tag: its name.
            scalar_value: the number, or a tensor of one element.
            global_step: the step that it belongs to.
            walltime: seconds since 1970; now by default, here and below.
            new_style: write it as a tensor, as newer readers expect.
            double_precision: write it in 64 bits.

        Raises:
            ValueError: it is not one number.
        """
        value = summaries.number(scalar_value)
        self._add(summaries.scalar(tag, value, new_style, double_precision), global_step, walltime)

    def add_scalars(
        self,
        main_tag: str,
        tag_scalar_dict: Mapping[str, Any],
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """Add numbers that one chart shows together, each in a file of its own."""
        walltime = time.time() if walltime is None else walltime
        for tag, value in tag_scalar_dict.items():
            writer = self._writer(f"{main_tag.replace('/', '_')}_{tag}")
            summary = summaries.scalar(main_tag, summaries.number(value), False, False)
            writer.add_summary(summary, global_step, walltime)

    def add_tensor(
        self, tag: str, tensor: Any, global_step: int | None = None, walltime: float | None = None
    ) -> None:
        """Add a tensor as it is."""
        self._add(summaries.tensor(tag, tensor), global_step, walltime)

    def add_histogram(
        self,
        tag: str,
        values: Any,
        global_step: int | None = None,
        bins: Any = "tensorflow",
        walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:
        """Add a histogram.

        Args:
            tag: its name.
            values: a tensor of any shape.
            global_step: the step that it belongs to.
            bins: limits, or what `numpy.histogram` makes limits of; "tensorflow": 1.1 apart.
            walltime: seconds since 1970.
            max_bins: join bins until there are no more.

        Raises:
            ValueError: there is no value, or one is not finite.
        """
        self._add(summaries.histogram(tag, values, bins, max_bins), global_step, walltime)

    def add_histogram_raw(
        self,
        tag: str,
        min: float,
        max: float,
        num: float,
        sum: float,
        sum_squares: float,
        bucket_limits: Any,
        bucket_counts: Any,
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """Add a histogram that the program has computed.

        Raises:
            ValueError: there are not as many limits as counts.
        """
        if len(bucket_limits) != len(bucket_counts):
            raise ValueError("len(bucket_limits) != len(bucket_counts), see the document.")
        summary = summaries.raw_histogram(
            tag, min, max, num, sum, sum_squares, bucket_limits, bucket_counts
        )
        self._add(summary, global_step, walltime)

    def add_image(
        self,
        tag: str,
        img_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:
        """Add a picture, as PNG.

        Args:
            tag: its name.
            img_tensor: floats from 0 to 1 or bytes; with 1 to 4 channels.
            global_step: the step that it belongs to.
            walltime: seconds since 1970.
            dataformats: what its dimensions are, such as "HWC"; with an N, a grid is shown.

        Raises:
            ValueError: the dimensions do not fit.
        """
        pixels = pictures.arranged(summaries.array(img_tensor), dataformats)
        self._add(summaries.image(tag, pictures.to_bytes(pixels)), global_step, walltime)

    def add_images(
        self,
        tag: str,
        img_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:
        """Add pictures as a grid; see `add_image`."""
        self.add_image(tag, img_tensor, global_step, walltime, dataformats)

    def add_figure(
        self,
        tag: str,
        figure: Any,
        global_step: int | None = None,
        close: bool = True,
        walltime: float | None = None,
    ) -> None:
        """Add a figure of matplotlib, or several of them as a grid.

        Args:
            tag: its name.
            figure: the figure, or a list.
            global_step: the step that it belongs to.
            close: close it afterwards.
            walltime: seconds since 1970.
        """
        several = figure if isinstance(figure, list) else [figure]
        drawn = []
        for one in several:
            from matplotlib.backends.backend_agg import FigureCanvasAgg

            canvas = FigureCanvasAgg(one)
            canvas.draw()
            drawn.append(np.asarray(canvas.buffer_rgba())[..., :3])
            if close:
                from matplotlib import pyplot

                pyplot.close(one)
        self.add_image(tag, np.stack(drawn), global_step, walltime, "NHWC")

    def add_video(
        self,
        tag: str,
        vid_tensor: Any,
        global_step: int | None = None,
        fps: float = 4,
        walltime: float | None = None,
    ) -> None:
        """Add videos (N, T, C, H, W) side by side, as an animated PNG."""
        self._add(summaries.video(tag, summaries.array(vid_tensor), fps), global_step, walltime)

    def add_audio(
        self,
        tag: str,
        snd_tensor: Any,
        global_step: int | None = None,
        sample_rate: int = 44100,
        walltime: float | None = None,
    ) -> None:
        """Add sound of one channel, numbers from -1 to 1."""
        summary = summaries.audio(tag, summaries.array(snd_tensor), sample_rate)
        self._add(summary, global_step, walltime)

    def add_text(
        self,
        tag: str,
        text_string: str,
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """Add a text, which is shown as Markdown."""
        self._add(summaries.text(tag, text_string), global_step, walltime)

    def add_graph(
        self,
        model: Any,
        input_to_model: Any = None,
        verbose: bool = False,
        use_strict_trace: bool = True,
    ) -> None:
        """Add the modules of a model as a graph, found by calling it once.

        Args:
            model: the module.
            input_to_model: a tensor, or a tuple of arguments.
            verbose: print the number of bytes.
            use_strict_trace: accepted for compatibility; nothing is compiled.

        Raises:
            ValueError: there is no input.
        """
        if input_to_model is None:
            raise ValueError("add_graph: input_to_model is needed, to see what flows where")
        graph = graph_of(model, input_to_model)
        if verbose:
            print(f"graph of {type(model).__name__}: {len(graph)} bytes")
        self._writer().add_graph(graph)

    def add_pr_curve(
        self,
        tag: str,
        labels: Any,
        predictions: Any,
        global_step: int | None = None,
        num_thresholds: int = 127,
        weights: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Add a curve of precision and recall.

        Args:
            tag: its name.
            labels: 0 or 1 of each element.
            predictions: probabilities of being 1.
            global_step: the step that it belongs to.
            num_thresholds: number of points, at most 127.
            weights: how much each element counts.
            walltime: seconds since 1970.
        """
        truth, scores = summaries.array(labels), summaries.array(predictions)
        summary = summaries.pr_curve(tag, truth, scores, min(num_thresholds, 127), weights)
        self._add(summary, global_step, walltime)

    def add_pr_curve_raw(
        self,
        tag: str,
        true_positive_counts: Any,
        false_positive_counts: Any,
        true_negative_counts: Any,
        false_negative_counts: Any,
        precision: Any,
        recall: Any,
        global_step: int | None = None,
        num_thresholds: int = 127,
        weights: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Add a curve that the program has computed."""
        rows = [true_positive_counts, false_positive_counts, true_negative_counts]
        rows += [false_negative_counts, precision, recall]
        table = np.stack([summaries.array(row) for row in rows])
        summary = summaries.raw_pr_curve(tag, table, min(num_thresholds, 127))
        self._add(summary, global_step, walltime)

    def add_hparams(
        self,
        hparam_dict: Mapping[str, Any],
        metric_dict: Mapping[str, Any],
        hparam_domain_discrete: Mapping[str, Sequence[Any]] | None = None,
        run_name: str | None = None,
        global_step: int | None = None,
    ) -> None:
        """Add the hyperparameters of a run and what it reached, in a file of their own.

        Args:
            hparam_dict: bools, numbers or texts by name.
            metric_dict: numbers by name.
            hparam_domain_discrete: all values that a hyperparameter may have.
            run_name: the directory below this writer's; the time by default.
            global_step: the step of the metrics.

        Raises:
            TypeError: an argument is no mapping.
            ValueError: a value is of another kind.
        """
        if not isinstance(hparam_dict, Mapping) or not isinstance(metric_dict, Mapping):
            raise TypeError("hparam_dict and metric_dict should be dictionary.")
        found = summaries.hparams(hparam_dict, list(metric_dict), hparam_domain_discrete or {})
        writer = self._writer(run_name or str(time.time()))
        for summary in found:
            writer.add_summary(summary, global_step)
        for name, value in metric_dict.items():
            summary = summaries.scalar(name, summaries.number(value), False, False)
            writer.add_summary(summary, global_step)
        writer.flush()

    def add_custom_scalars(self, layout: Mapping[str, Mapping[str, Sequence[Any]]]) -> None:
        """Add a page of charts: {category: {title: ["Multiline" or "Margin", tags]}}."""
        self._add(summaries.layout(layout), None, None)

    def add_custom_scalars_multilinechart(
        self, tags: Sequence[str], category: str = "default", title: str = "untitled"
    ) -> None:
        """Add a chart of several scalars."""
        self.add_custom_scalars({category: {title: ["Multiline", tags]}})

    def add_custom_scalars_marginchart(
        self, tags: Sequence[str], category: str = "default", title: str = "untitled"
    ) -> None:
        """Add a chart of one scalar between two others: [value, lower, upper]."""
        self.add_custom_scalars({category: {title: ["Margin", tags]}})

    def add_embedding(
        self,
        mat: Any,
        metadata: Sequence[Any] | None = None,
        label_img: Any = None,
        global_step: int | None = None,
        tag: str = "default",
        metadata_header: Sequence[str] | None = None,
    ) -> None:
        """Add points for the projector, in files of their own.

        Args:
            mat: the points, one a row.
            metadata: a label of each point, or a list of several.
            label_img: a picture of each point (N, C, H, W).
            global_step: the step that they belong to.
            tag: their name.
            metadata_header: names of the labels where there are several.

        Raises:
            ValueError: there are not as many labels or pictures as points.
        """
        points = summaries.array(mat)
        if points.ndim != 2:
            raise ValueError(f"add_embedding: points (N, D) are expected, got {points.shape}")
        step = f"{0 if global_step is None else int(global_step):05d}"
        below = os.path.join(step, re.sub(r"[^\w.-]", "_", tag))
        folder = os.path.join(self.log_dir, below)
        os.makedirs(folder, exist_ok=True)
        entry: dict[str, Any] = {"tensor_name": f"{tag}:{step}"}
        entry["tensor_path"] = os.path.join(below, "tensors.tsv")
        _write_table(os.path.join(folder, "tensors.tsv"), points.tolist())
        if metadata is not None:
            if len(metadata) != len(points):
                raise ValueError("#labels should equal with #data points")
            rows = metadata if metadata_header else [[label] for label in metadata]
            header = [list(metadata_header)] if metadata_header else []
            entry["metadata_path"] = os.path.join(below, "metadata.tsv")
            _write_table(os.path.join(folder, "metadata.tsv"), [*header, *rows])
        if label_img is not None:
            images = summaries.array(label_img)
            if len(images) != len(points):
                raise ValueError("#images should equal with #data points")
            size = _write_sprite(os.path.join(folder, "sprite.png"), images)
            path = os.path.join(below, "sprite.png")
            entry["sprite"] = {"image_path": path, "single_image_dim": size}
        self._embeddings.append(summaries.config({"embeddings": entry}))
        with open(os.path.join(self.log_dir, _PROJECTOR), "w", encoding="utf-8") as file:
            file.write("\n".join(self._embeddings) + "\n")


def _write_table(path: str, rows: Sequence[Sequence[Any]]) -> None:
    with open(path, "w", encoding="utf-8") as file:
        for row in rows:
            cells = (str(cell).replace("\t", " ").replace("\n", " ") for cell in row)
            file.write("\t".join(cells) + "\n")


def _write_sprite(path: str, images: Any) -> list[int]:
    """Write pictures (N, C, H, W) into one, a square of them; return width and height of each."""
    count, channels, height, width = images.shape
    side = ceil(sqrt(count))
    empty = np.zeros((side * side - count, channels, height, width), images.dtype)
    cells = np.concatenate([images, empty]).reshape(side, side, channels, height, width)
    joined = cells.transpose(0, 3, 1, 4, 2).reshape(side * height, side * width, channels)
    with open(path, "wb") as file:
        file.write(pictures.png(pictures.to_bytes(joined)[None]))
    return [width, height]
