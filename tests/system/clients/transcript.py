# SPDX-License-Identifier: BSL-1.0
"""Calls of a client's methods, each with the answer that the client's documentation states for a memcached.

A client program makes its calls through a Transcript and prints one JSON object for each call: method, arguments, answer, and the stated
answer. The last object lists all public methods of the client, and those that send nothing to a server. judge.py reads the objects.
Programs in other languages print the same objects.
"""

from __future__ import annotations

import inspect
import itertools
import json
from collections.abc import Callable, Iterable


class Transcript:
    """Makes each call on the next of several clients, so that calls which depend on each other arrive on different connections."""

    def __init__(self, clients: Iterable[object], run: Callable = lambda answer: answer) -> None:
        """`run` waits for an answer that is a coroutine."""
        self._clients = itertools.cycle(clients)
        self._run = run

    def __call__(self, stated: object, method: str, *arguments: object, **options: object) -> object:
        """Calls `method`. `stated` is the answer, the class of the exception, or a function that returns true for the answer."""
        try:
            answer = getattr(next(self._clients), method)(*arguments, **options)
            if inspect.isawaitable(answer):
                answer = self._run(answer)
        except Exception as error:
            answer = error
        if isinstance(stated, type):
            fits = isinstance(answer, stated)
        else:
            fits = stated(answer) if callable(stated) else answer == stated and type(answer) is type(stated)
        words = [*map(repr, arguments), *(f"{name}={value!r}" for name, value in options.items())]
        shown = repr(answer)[:200]
        wanted = getattr(stated, "__name__", None) or repr(stated)
        print(json.dumps({"method": method, "arguments": ", ".join(words)[:200], "answer": shown, "stated": shown if fits else wanted}))
        return answer


def list_methods(kind: type, local: Iterable[str]) -> None:
    """Prints the public methods of a client's class. Methods in `local` send nothing to a server."""
    methods = [name for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name))]
    print(json.dumps({"class": kind.__name__, "methods": methods, "local": sorted(local)}), flush=True)


def a_unique(answer: object) -> bool:
    """True for a CAS unique, which is a number or its digits."""
    return int(answer) > 0


def with_unique(value: object) -> Callable[[object], bool]:
    """True for `value` with a CAS unique."""

    def is_value_with_unique(answer: object) -> bool:
        return answer[0] == value and a_unique(answer[1])

    return is_value_with_unique


def has_names(*names: object) -> Callable[[object], bool]:
    """True for statistics that include all `names`."""

    def includes_names(answer: object) -> bool:
        return all(name in answer for name in names)

    return includes_names
