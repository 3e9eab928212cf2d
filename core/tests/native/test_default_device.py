"""The default device is that of a thread."""

from __future__ import annotations

import threading


def in_another_thread(function):
    found = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


def test_a_context_is_of_the_thread_that_entered_it(agree):
    def program(t):
        with t.device("meta"):
            inner = in_another_thread(lambda: str(t.ones(1).device))
            return inner, str(t.ones(1).device), str(t.get_default_device())

    agree(program)


def test_a_device_that_is_set_is_of_the_thread_that_set_it(agree):
    def set_and_make(t):
        t.set_default_device("meta")
        return str(t.ones(1).device)

    def program(t):
        there = in_another_thread(lambda: set_and_make(t))
        return there, str(t.ones(1).device), in_another_thread(lambda: str(t.ones(1).device))

    agree(program)


def test_contexts_nest_and_a_wrong_device_changes_nothing(agree):
    def program(t):
        found = []
        with t.device("meta"), t.device("cpu"):
            found.append(str(t.ones(1).device))
            with t.device("meta"):
                found.append(str(t.ones(1).device))
            found.append(str(t.ones(1).device))
        try:
            t.set_default_device("no such device")
        except (RuntimeError, TypeError):
            found.append("refused")
        return [*found, str(t.ones(1).device)]

    agree(program)
