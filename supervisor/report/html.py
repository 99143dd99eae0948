"""HTML that is escaped unless it was made here: `el` is the only way from text to markup."""

import html
from typing import Any


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def el(name: str, *children: Any, **attributes: object) -> Markup:
    """One element. Children that are no Markup are escaped; an attribute of None is left out; class_ is `class`."""
    told = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inner = join(*children)
    return Markup(f"<{name}{told}>{inner}</{name}>")


def join(*children: Any) -> Markup:
    """The children one after the other, escaped where they are text."""
    return Markup("".join(_markup(child) for child in children))


def _markup(child: Any) -> str:
    if isinstance(child, Markup):
        return child
    if isinstance(child, list | tuple):
        return join(*child)
    return "" if child is None else html.escape(str(child))
