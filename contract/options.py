"""Options that several commands take."""

from typing import Annotated

import typer

from contract.language import speak


def _known(context: typer.Context, value: str) -> str:
    """Zh or en, also as a locale's name (zh_CN.UTF-8). Anything else is said, not taken for English."""
    if value and not value.lower().startswith(("zh", "en")):
        raise typer.BadParameter(f"{value!r} is not spoken here; zh or en")
    speak(value)
    context.call_on_close(lambda: speak(""))
    return value


Lang = Annotated[
    str, typer.Option("--lang", help="zh or en; else CIUIC_LANG, else the locale's.", callback=_known)
]
