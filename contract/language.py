"""The language of whoever reads here, and English sentences told in Chinese.

What machines read (JSON, journal, exit codes) is English. A sentence is written once, in English, where it is made;
the Chinese stands in a book beside it, and takes its place where a person reads.
"""

import os
import re
from collections.abc import Callable, Mapping
from contextvars import ContextVar

LANGUAGES = ("en", "zh")
_CHOSEN: ContextVar[str] = ContextVar("language", default="")
_FIELD = re.compile(r"\{(\w+)\}")


def language(option: str = "", environment: Mapping[str, str] = os.environ) -> str:
    """`--lang`, else CIUIC_LANG, else the locale's; English where nothing says Chinese."""
    for name in ("CIUIC_LANG", "LC_ALL", "LC_MESSAGES", "LANG"):
        option = option or environment.get(name, "")
    return "zh" if option.lower().startswith("zh") else "en"


def spoken() -> str:
    """The language of the command that runs here: its --lang, else as the environment says."""
    return language(_CHOSEN.get())


def speak(option: str) -> None:
    """What --lang of the command that runs here says; "" leaves it to the environment."""
    _CHOSEN.set(option)


class Book:
    """English sentences → Chinese ones, both with `{fields}`. A field may hold a sentence of the book itself."""

    def __init__(self, *pages: Mapping[str, str]) -> None:
        self.forms = forms = {english: chinese for page in pages for english, chinese in page.items()}
        # The sentence that says most by itself is meant, not one that would take anything.
        ordered = sorted(forms, key=lambda form: len(_FIELD.sub("", form)), reverse=True)
        self._forms = [(_pattern(english), forms[english]) for english in ordered]
        # `{name}: {why}` also fits the words of others; it is ours when a part of it is.
        self._mere_signs = {_pattern(form) for form in forms if not re.search("[a-z]", _FIELD.sub("", form))}

    def chinese(self, text: str) -> str:
        """The text in Chinese, as far as it is ours; the words of others stay."""
        for pattern, form in self._forms:
            found = pattern.fullmatch(text)
            if found:
                parts = found.groupdict()
                told = {name: self.chinese(part) for name, part in parts.items()}
                if told != parts or pattern not in self._mere_signs:
                    return form.format(**told)
        return piecewise(text, self.chinese)

    def told(self, text: str, to: str = "") -> str:
        """The text in the language `to`, by default that of the command that runs here."""
        return self.chinese(text) if (to or spoken()) == "zh" else text


def piecewise(text: str, chinese: Callable[[str], str]) -> str:
    """Several sentences with "; " between, each told by itself; unchanged when none is known."""
    pieces = text.split("; ")
    best = text
    for number in range(len(pieces) - 1, 0, -1):
        parts = "; ".join(pieces[:number]), "; ".join(pieces[number:])
        told = chinese(parts[0]), chinese(parts[1])
        if told[0] != parts[0] and told[1] != parts[1]:
            return "；".join(told)
        if told != parts and best == text:
            best = "；".join(told)
    return best


def _pattern(form: str) -> re.Pattern[str]:
    parts, named = [], set()
    for number, part in enumerate(_FIELD.split(form)):
        if number % 2 == 0:
            parts.append(re.escape(part))
        else:
            parts.append(f"(?P={part})" if part in named else f"(?P<{part}>.+?)")
            named.add(part)
    return re.compile("".join(parts), re.DOTALL)
