"""What a device was asked, what it answered, and which kernel its author should write next."""

from __future__ import annotations

import html
import json
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import tangrad
from tangrad.plugin import FallbackWarning
from tangrad_testing import steps
from tangrad_testing.levels import LEVELS, Check, Device, Outcome, checks_of
from tangrad_testing.levels.kernels import own_kernels
from tangrad_testing.levels.run import run_check
from tangrad_testing.levels.speed import Figure, figures
from tangrad_testing.tally import Tally

ORACLE = "the reference device (NumPy); pytest --tangrad-device={} compares with PyTorch"
MOST_NAMED = 12
SPEED = 8

Card = dict[str, Any]


def make(
    device: Device,
    levels: Iterable[int] = LEVELS,
    tell: Callable[[Outcome], None] = lambda outcome: None,
) -> Card:
    """Check a device that is not open yet, and return the card as what JSON can hold.

    Args:
        device: what is checked.
        levels: numbers of levels.
        tell: called after each check.

    Raises:
        RuntimeError: there is no such device, or it cannot be used here.
    """
    levels = list(levels)
    tally = Tally()
    with tally.watching(device.name):
        facts = device.driver.properties(0)
        outcomes = []
        for check in _without_speed(checks_of(device, levels)):
            outcomes.append(run_check(check, device))
            tell(outcomes[-1])
        whole = not device.ops and not device.driver.meta
        typical = list(_steps(device, tally, tell)) if whole else []
        speeds = figures(device) if SPEED in levels and whole else []
    return {
        "device": device.name,
        "properties": {name: str(value) for name, value in dict(facts).items()},
        "tangrad": tangrad.__version__,
        "oracle": ORACLE.format(device.name),
        "passed": not any(o.status == "failed" for o in outcomes)
        and all("error" not in step for step in typical),
        "seconds": round(sum(o.seconds for o in outcomes), 2),
        "levels": [_level(number, outcomes) for number in levels if number != SPEED],
        "failures": [_failure(o) for o in outcomes if o.status == "failed"],
        "not_applicable": _reasons(outcomes),
        "kernels": _kernels(device, outcomes, tally),
        "steps": typical,
        "next": _next(typical),
        "speed": [_speed(figure) for figure in speeds],
    }


def _without_speed(checks: Iterator[Check]) -> Iterator[Check]:
    return (check for check in checks if check.level != SPEED)


def _level(number: int, outcomes: Sequence[Outcome]) -> Card:
    found = [o for o in outcomes if o.check.level == number]
    counts = Counter(o.status for o in found)
    return {
        "level": number,
        "title": LEVELS[number][1],
        "passed": counts["passed"],
        "failed": counts["failed"],
        "not_applicable": counts["not applicable"],
        "seconds": round(sum(o.seconds for o in found), 2),
    }


def _failure(outcome: Outcome) -> Card:
    check = outcome.check
    return {
        "level": check.level,
        "check": check.name,
        "says": check.says,
        "message": outcome.message,
    }


def _reasons(outcomes: Sequence[Outcome]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for outcome in outcomes:
        if outcome.status == "not applicable":
            name = f"{outcome.check.level} {outcome.check.name}"
            found.setdefault(outcome.message, []).append(name)
    return found


def _kernels(device: Device, outcomes: Sequence[Outcome], tally: Tally) -> Card:
    """Tell which of the device's kernels ran: counted, or compiled and compared.

    A compiled kernel without samples of its own runs as a part of other ops, uncounted.
    """
    compared = {
        o.check.name for o in outcomes if o.check.level == 1 and o.status != "not applicable"
    }
    found: dict[str, dict[str, list[str]]] = {"ran": {}, "never_ran": {}, "not_counted": {}}
    for op, dtypes in own_kernels(device).items():
        for dtype in dtypes:
            if (op, dtype) in tally.ran or f"{op}-{dtype}" in compared:
                state = "ran"
            else:
                state = "never_ran" if (op, dtype) in tally.countable else "not_counted"
            found[state].setdefault(op, []).append(dtype)
    return found


def _steps(
    device: Device, tally: Tally, tell: Callable[[Outcome], None]
) -> Iterator[dict[str, Any]]:
    for name in steps.MODELS:
        check = Check(3, f"step-{name}", f"a {name} is trained", _trainer(name))
        with tally.apart() as calls:
            outcome = run_check(check, device)
        tell(outcome)
        step: dict[str, Any] = {"model": name, "steps": steps.STEPS}
        for how in ("kernel", "decomposition", "host"):
            counted = Counter({op: n for (op, by), n in calls.items() if by == how})
            step[how] = dict(counted.most_common())
        if outcome.status == "failed":
            step["error"] = outcome.message
        yield step


def _trainer(name: str) -> Callable[[Device], None]:
    def body(device: Device) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FallbackWarning)
            steps.train(name, device.name)

    return body


def _next(typical: Sequence[Card]) -> list[dict[str, Any]]:
    """Order the ops that ran on the host by how often they did in a step of each model."""
    total: Counter[str] = Counter()
    for step in typical:
        for op, calls in step["host"].items():
            total[op] += calls
    return [{"op": op, "calls": calls} for op, calls in total.most_common()]


def _speed(figure: Figure) -> Card:
    return {
        "op": figure.op,
        "rate": round(figure.rate, 2),
        "unit": figure.unit,
        "share_of_peak": round(figure.share, 3),
    }


def as_json(card: Card) -> str:
    """Return a card as JSON."""
    return json.dumps(card, indent=2)


def as_text(card: Card) -> str:
    """Return a card as text to be read in a terminal."""
    return "\n".join(_lines(card))


def _lines(card: Card) -> Iterator[str]:
    yield _headline(card)
    yield f"The oracle is {card['oracle']}."
    yield ""
    for title, head, rows in _tables(card):
        yield from _table(title, head, rows)
    for failure in _failures(card):
        yield f"FAILED {failure['where']}: {failure['message']}"
    yield _verdict(card)


def _headline(card: Card) -> str:
    """Name the device, what it says of itself, and the core; its name once."""
    told = [f"{k} {v}" for k, v in card["properties"].items() if (k, v) != ("name", card["device"])]
    facts = f" ({', '.join(told)})" if told else ""
    return f"Device '{card['device']}'{facts}, tangrad {card['tangrad']}"


def _verdict(card: Card) -> str:
    """Return the answer in a line."""
    asked = sum(row["passed"] + row["failed"] for row in card["levels"]) + len(card["steps"])
    verdict = "all passed" if asked else "nothing was checked"
    if not card["passed"]:
        verdict = f"NOT CONFORMING: {len(_failures(card))} failed"
    return f"{verdict}, {card['seconds']:.1f} s of checks"


def _failures(card: Card) -> list[dict[str, str]]:
    """Return what failed: checks, then steps of training."""
    checks = [
        {"where": f"level {f['level']}, {f['check']}", "message": f["message"]}
        for f in card["failures"]
    ]
    steps_ = [step for step in card["steps"] if "error" in step]
    return checks + [{"where": step["model"], "message": step["error"]} for step in steps_]


def _tables(card: Card) -> Iterator[tuple[str, Sequence[str], list[list[str]]]]:
    """Yield (title, head, rows) of all that a card tells, for text and HTML alike."""
    names = ("level", "title", "passed", "failed", "not_applicable")
    head = ("level", "about", "passed", "failed", "not applicable", "seconds")
    rows = [[*(str(row[n]) for n in names), f"{row['seconds']:.2f}"] for row in card["levels"]]
    yield "Levels", head, rows
    reasons = [[why, _listed(which)] for why, which in card["not_applicable"].items()]
    yield "Not applicable, because", ("reason", "checks"), reasons
    kernels = card["kernels"]
    rows = [[op, "ran", " ".join(dtypes)] for op, dtypes in kernels["ran"].items()]
    rows = rows if len(rows) <= 4 * MOST_NAMED else [[f"{len(rows)} ops", "ran", ""]]
    rows += [[op, "NEVER RAN", " ".join(d)] for op, d in _first(kernels["never_ran"])]
    rows += [[op, "not counted", " ".join(d)] for op, d in _first(kernels["not_counted"])]
    yield "Kernels of the device", ("op", "state", "dtypes"), rows
    rows = [
        [step["model"], how, str(sum(step[how].values())), _listed([*step[how]])]
        for step in card["steps"]
        for how in ("kernel", "decomposition", "host")
        if step[how]
    ]
    rows += [
        [step["model"], "kernel", "", "compiled, which is not counted; nothing else was needed"]
        for step in card["steps"]
        if not any(step[how] for how in ("kernel", "decomposition", "host"))
    ]
    yield f"Calls in {steps.STEPS} steps of training", ("model", "by", "calls", "ops"), rows
    rows = [[row["op"], str(row["calls"])] for row in card["next"][:MOST_NAMED]]
    yield "Kernels to write next (calls that went to the host)", ("op", "calls"), rows
    rows = [
        [row["op"], f"{row['rate']:g} {row['unit']}", f"{row['share_of_peak']:.0%}"]
        for row in card["speed"]
    ]
    yield "Speed against the device's own peak", ("op", "rate", "of its peak"), rows


def _first(ops: dict[str, list[str]]) -> list[tuple[str, list[str]]]:
    named = list(ops.items())
    rest = len(named) - 2 * MOST_NAMED
    return named if rest <= 0 else [*named[: 2 * MOST_NAMED], (f"and {rest} more", [])]


def _listed(names: Sequence[str]) -> str:
    rest = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def _table(title: str, head: Sequence[str], rows: list[list[str]]) -> Iterator[str]:
    if not rows:
        return
    cells = [list(head), *rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    right = [_is_number(rows, i) for i in range(len(head))]
    yield title
    for row in cells:
        padded = (
            cell.rjust(width) if numbers else cell.ljust(width)
            for cell, width, numbers in zip(row, widths, right, strict=True)
        )
        yield f"  {'  '.join(padded)}".rstrip()
    yield ""


def _is_number(rows: list[list[str]], column: int) -> bool:
    """Tell whether a column holds nothing but numbers, which stand below each other."""
    return all(row[column].replace(".", "").rstrip("%").isdigit() for row in rows if row[column])


STYLE = """:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; } td, th { padding: .15em .8em; text-align: left;
vertical-align: top; border-bottom: 1px solid #8884; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
.verdict { font-size: 1.2em; font-weight: bold; } .good { color: #183; } .bad { color: #c33; }"""


def as_html(card: Card) -> str:
    """Return a card as a page of its own, without scripts."""
    title = html.escape(f"tangrad device {card['device']}")
    mood = "good" if card["passed"] else "bad"
    body = [
        f"<h1>{title}</h1>",
        f"<p class='verdict {mood}'>{html.escape(_verdict(card))}</p>",
        f"<p>{html.escape(_headline(card))}. The oracle is {html.escape(card['oracle'])}.</p>",
    ]
    if not card["passed"]:
        items = "".join(
            f"<li><b>{html.escape(f['where'])}</b>: {html.escape(f['message'])}</li>"
            for f in _failures(card)
        )
        body.append(f"<h2>Failures</h2><ul class='bad'>{items}</ul>")
    for name, head, rows in _tables(card):
        if rows:
            body.append(f"<h2>{html.escape(name)}</h2>{_html_table(head, rows)}")
    return (
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{title}</title>"
        "<meta name='viewport' content='width=device-width'>"
        f"<style>{STYLE}</style>{''.join(body)}</html>\n"
    )


def _html_table(head: Sequence[str], rows: list[list[str]]) -> str:
    kinds = [" class='number'" if _is_number(rows, i) else "" for i in range(len(head))]

    def line(tag: str, cells: Sequence[str]) -> str:
        pairs = zip(cells, kinds, strict=True)
        return "<tr>" + "".join(f"<{tag}{k}>{html.escape(c)}</{tag}>" for c, k in pairs) + "</tr>"

    return f"<table>{line('th', head)}{''.join(line('td', row) for row in rows)}</table>"
