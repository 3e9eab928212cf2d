"""How long each stage of loading takes, and which one training waits for."""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

_ENOUGH = 0.1  # a share of the time that training may wait without being said to starve
_IDLE = 0.5  # workers that are busy less than this are not what training waits for


class Times:
    """Seconds of each stage, summed over batches.

    Attributes:
        batches: number of batches given.
        first: time until the first batch of each pass, in which workers start.
        wait: time that the program waited for the batches after the first.
        step: time that the program spent between batches.
        samples: time in the data set.
        collate: time in `collate_fn`.
        transport: time to send batches to the program's process.
        began: when the latest batch was begun, by the clock `time.perf_counter`.
    """

    __slots__ = ("batches", "began", "collate", "first", "samples", "step", "transport", "wait")

    def __init__(self) -> None:
        self.batches = 0
        self.first = self.wait = self.step = 0.0
        self.samples = self.collate = self.transport = self.began = 0.0


class Report(NamedTuple):
    """What `DataLoader.report` tells; its text is a table with a conclusion.

    Attributes:
        workers: number of worker processes.
        batches: number of batches given.
        first: seconds until the first batch of each pass, in which workers start.
        wait: seconds that training waited for the other batches.
        step: seconds that training computed between batches.
        samples: seconds in the data set, in all processes together.
        collate: seconds in `collate_fn`, in all processes together.
        transport: seconds to send batches from the workers, in all of them together.
    """

    workers: int
    batches: int
    first: float
    wait: float
    step: float
    samples: float
    collate: float
    transport: float

    @property
    def waiting(self) -> float:
        """The share of the time in which training waits, the first batches left out."""
        total = self.wait + self.step
        return self.wait / total if total else 0.0

    @property
    def starved_by(self) -> str | None:
        """The stage that starves training: "samples", "collate", "transport"; None if none does.

        It is "transport", too, if the workers wait as training does: then what takes the time is
        to receive the batches in the program's process.
        """
        if self.waiting < _ENOUGH or not self.batches:
            return None
        stages = {"samples": self.samples, "collate": self.collate, "transport": self.transport}
        busy = sum(stages.values())
        if self.workers and busy < _IDLE * self.workers * (self.wait + self.step):
            return "transport"
        return max(stages, key=lambda name: stages[name])

    def __str__(self) -> str:
        if not self.batches:
            return "DataLoader: no batch has been asked for yet"
        where = f"in {self.workers} workers" if self.workers else "in the program's process"
        rows = [
            ("samples", self.samples, f"the data set, {where}"),
            ("collate", self.collate, f"collate_fn, {where}"),
            *([("transport", self.transport, "sending, in the workers")] * bool(self.workers)),
            ("first batch", self.first, "training waits, workers start"),
            ("wait", self.wait, "training waits for the other batches"),
            ("step", self.step, "training computes"),
        ]
        lines = [
            f"  {name:<11} {seconds:9.3f} s {1e3 * seconds / self.batches:10.3f} ms  {what}"
            for name, seconds, what in rows
        ]
        heading = f"DataLoader: {self.batches} batches; each stage in all, and per batch"
        return "\n".join([heading, *lines, self._conclusion()])

    def _conclusion(self) -> str:
        share = f"training waits for data {self.waiting:.0%} of the time"
        stage = self.starved_by
        if stage is None:
            return f"Nothing starves training: {share}."
        if not self.workers:
            return (
                f"The stage '{stage}' starves training: {share}; with num_workers=1 or more it "
                "runs beside."
            )
        busy = (self.samples + self.collate + self.transport) / self.batches
        step = self.step / self.batches
        advice = {
            "samples": "make __getitem__ cheaper, or",
            "collate": "make collate_fn cheaper, or",
            "transport": "send smaller batches, such as uint8 in place of float32",
        }[stage]
        if stage != "transport":
            needed = ceil(round(busy / step, 3)) if step else "more"
            advice += f" take {needed} workers, if there are as many processors"
        return f"The stage '{stage}' starves training: {share}; {advice}."
