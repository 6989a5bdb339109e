"""What a person may call a class: its name, or its number."""

from __future__ import annotations

import re
from collections.abc import Sequence


def find_label(called: str, names: Sequence[str]) -> int | None:
    """The class that is called so: by name, by name in another case where that is one class alone, or by number.

    Where all names are numbers, such as stars, a number is a name: 0 is not the first of 1 to 5. None: no such class.

    >>> find_label("Good", ["bad", "good"]), find_label("1", ["bad", "good"]), find_label("a", ["A", "a"])
    (1, 1, 1)
    >>> find_label("1", ["1", "2"]), find_label("0", ["1", "2"]), find_label("2", ["bad", "good"])
    (0, None, None)
    """
    if called in names:
        return list(names).index(called)
    folded = [name.casefold() for name in names]
    if folded.count(called.casefold()) == 1:
        return folded.index(called.casefold())
    if all(re.fullmatch(r"-?[0-9]+", name) for name in names) or not re.fullmatch(r"[0-9]+", called):
        return None
    return int(called) if int(called) < len(names) else None
