"""Who may look: on this machine everybody, or, with a token, whoever has been given it once. Pure but for the environment.

The browser keeps a value made from the token, never the token itself; both are compared in constant time.
"""

import hmac
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

TOKEN = "CIUIC_PAGE_TOKEN"  # noqa: S105 - the variable's name
_LEAST = 16
_HERE = frozenset({"127.0.0.1", "::1", "localhost"})


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where the page is served. `token` "": whoever reaches it may look."""

    host: str
    port: int
    token: str = field(default="", repr=False)

    @property
    def local(self) -> bool:
        return self.host in _HERE


def page_place(host: str, port: int, environment: MutableMapping[str, str]) -> Place | None:
    """Where, None for a port of 0. The token is taken out of the environment: no child of ours inherits it.

    Raises:
        ValueError: it would be open to others without a token, or the token is too short to be one.
    """
    token = environment.pop(TOKEN, "").strip()
    if not port:
        return None
    place = Place(host=host, port=port, token=token)
    if token and len(token) < _LEAST:
        raise ValueError(
            f"{TOKEN} has {len(token)} characters; take {_LEAST} or more, as of: openssl rand -hex 16"
        )
    if not token and not place.local:
        raise ValueError(
            f"--page-host {host} is open to others: set {TOKEN} (openssl rand -hex 16), or leave it at 127.0.0.1"
        )
    return place


class Door:
    """Judges requests by their headers."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._name = f"ciuic_page_{place.port}"  # cookies do not tell ports apart
        self._value = (
            hmac.new(place.token.encode(), b"ciuic page", "sha256").hexdigest() if place.token else ""
        )

    def cookie_for(self, token: str) -> str | None:
        """The header that lets this browser in from now on; None for a wrong token.

        Without a path, so that it holds for wherever a proxy has put us. Lax, not Strict: the link comes from a chat.
        """
        if not self._place.token or not _same(token, self._place.token):
            return None
        return f"{self._name}={self._value}; HttpOnly; SameSite=Lax; Max-Age=2592000"

    def opens(self, cookies: str, host: str) -> bool:
        """Whether a request with these headers is answered.

        Without a token, the name in the address bar must be this machine's: a page elsewhere, whose name was made to
        point here, could read us through its visitor's browser.
        """
        if not self._place.token:
            return _name_of(host) in _HERE
        try:
            found = SimpleCookie(cookies).get(self._name)
        except CookieError:
            return False
        return found is not None and _same(found.value, self._value)


def _same(one: str, other: str) -> bool:
    """Compared in constant time, lengths too."""
    return hmac.compare_digest(
        hmac.digest(b"length", one.encode(errors="replace"), "sha256"),
        hmac.digest(b"length", other.encode(errors="replace"), "sha256"),
    )


def _name_of(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
