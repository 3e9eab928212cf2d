"""Ask plugins whether they can work on this machine, within a time limit."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

from tangrad.discovery.discovery import DISABLE_VARIABLE, Plugin, current, keep_failure

PROBE_VARIABLE = "TANGRAD_PROBE_TIMEOUT"
PROBE_SECONDS = 5.0


def probe(plugin: Plugin, ask: Callable[[], Any]) -> str | None:
    """Ask a plugin whether it can work on this machine, within a time limit.

    Args:
        plugin: whose probe it is; what goes wrong is kept as its failure.
        ask: returns True, or the reason why not.

    Returns:
        None if it is available, else the reason.
    """
    kept = current().failures.get((plugin.identity, "probe"))
    if kept is not None:
        return kept.cause
    answers: list[Any] = []
    # A daemon: a probe that never comes back must not keep the process from ending.
    thread = threading.Thread(
        target=lambda: answers.append(_answer(ask)), name=f"probe {plugin.name}", daemon=True
    )
    limit = _probe_seconds()
    thread.start()
    thread.join(limit)
    if not answers:
        cause: str | BaseException = f"did not answer within {limit:g} s"
    elif answers[0] is True:
        return None
    else:
        cause = _refusal(answers[0])
    remedy = f"Set {PROBE_VARIABLE} to wait longer, or {DISABLE_VARIABLE}={plugin.name} to skip it."
    if answers:
        remedy = "Remove the cause, then restart the program."
    failure = keep_failure(plugin, "probe", cause, remedy)
    failure.missing = bool(answers) and isinstance(answers[0], str)
    return failure.cause


def _answer(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except BaseException as error:
        return error


def _refusal(answer: Any) -> str | BaseException:
    if isinstance(answer, str | BaseException):
        return answer
    return f"its probe() returned {answer!r}; it has to return True or the reason why not"


def _probe_seconds() -> float:
    text = os.environ.get(PROBE_VARIABLE, "")
    try:
        seconds = float(text) if text else PROBE_SECONDS
    except ValueError:
        raise ValueError(f"{PROBE_VARIABLE} must be a number of seconds, got '{text}'") from None
    # Longer than threading can wait means for ever; nan and negatives wait not at all.
    return min(seconds, threading.TIMEOUT_MAX) if seconds > 0 else 0.0
