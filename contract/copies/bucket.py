"""A bucket of an S3-compatible service, through obstore: whatever happens there becomes one line without a secret."""

import contextlib
import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from contract.config.copies import Service
from contract.copies.store import Environment, StoreError, Trouble

_KEY = "AWS_ACCESS_KEY_ID"
CREDENTIALS = (_KEY, "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
"""Names of the variables that hold what must appear nowhere."""
_REASON = re.compile(r"<Code>([^<]{1,100})</Code>(?:\s*<Message>([^<]{0,300})</Message>)?")
_STATUS = re.compile(r"status code: (\d{3})")
_BY_CODE = {
    "NoSuchBucket": Trouble.MISSING,
    "QuotaExceeded": Trouble.FULL,
    "XMinioStorageFull": Trouble.FULL,
    "XMinioAdminBucketQuotaExceeded": Trouble.FULL,
    "BadDigest": Trouble.CORRUPT,
    "XAmzContentSHA256Mismatch": Trouble.CORRUPT,
    "IncompleteBody": Trouble.CUT,
}
_BY_STATUS = {401: Trouble.REFUSED, 403: Trouble.REFUSED, 404: Trouble.MISSING, 507: Trouble.FULL}


class Bucket:
    """obstore's `library` and its `client` of this bucket; every call of them stands inside `told`."""

    def __init__(self, name: str, where: str, settings: Service, environment: Environment) -> None:
        """`where`: the place, for people.

        Raises:
            StoreError: no credentials, no library, or settings that it does not take.
        """
        self.where = where
        self._secrets = tuple(environment[name] for name in CREDENTIALS if environment.get(name))
        if settings.endpoint and not environment.get(_KEY):
            raise StoreError(
                Trouble.CREDENTIALS,
                f"no credentials: {_KEY} and AWS_SECRET_ACCESS_KEY are not in the environment of this process",
            )
        try:
            import obstore  # noqa: PLC0415 - an extra: only who uses a store needs it
            from obstore.store import S3Store as Client  # noqa: PLC0415
        except ImportError as error:
            raise StoreError(
                Trouble.LIBRARY, f"{error}; install the extra: pip install 'ciuic[s3]'"
            ) from None
        self.library: Any = obstore
        with self.told():
            self.client: Any = Client(name, **_options(name, settings), **_identity(environment))

    def get(self, key: str) -> bytes | None:
        """The object, None when it is not there."""
        try:
            with self.told():
                return bytes(self.library.get(self.client, key).bytes())
        except StoreError as error:
            if error.trouble is Trouble.MISSING and "NoSuchBucket" not in str(error):
                return None
            raise

    def part(self, key: str, start: int, count: int) -> bytes:
        """Bytes [start, start + count) of the object, fewer where it ends."""
        with self.told():
            return bytes(self.library.get_range(self.client, key, start=start, length=count))

    @contextlib.contextmanager
    def told(self) -> Iterator[None]:
        """What the library raises carries whole answers of the server: only what is understood goes on."""
        try:
            yield
        except Exception as error:
            raise _story(error, self._secrets, self.where) from None


def _options(bucket: str, settings: Service) -> dict[str, Any]:
    timeout = timedelta(seconds=settings.request_timeout_s)
    hosted = settings.style == "virtual-host"
    options: dict[str, Any] = {
        "region": settings.region,
        "virtual_hosted_style_request": hosted,
        "disable_bulk_delete": True,  # OSS has none, and a removal is a few dozen objects
        "client_options": {
            "timeout": timeout,
            "connect_timeout": timedelta(seconds=min(5.0, settings.request_timeout_s)),
            "allow_http": settings.endpoint.startswith("http://"),
        },
        # A copy is tried again as a whole, later; these few bridge a hiccup.
        "retry_config": {
            "max_retries": 3,
            "retry_timeout": timeout,
            "backoff": {
                "init_backoff": timedelta(milliseconds=200),
                "max_backoff": timedelta(seconds=5),
                "base": 2,
            },
        },
    }
    if settings.endpoint:
        scheme, _, host = settings.endpoint.partition("://")
        options["endpoint"] = f"{scheme}://{bucket}.{host}" if hosted else settings.endpoint
    return options


def _identity(environment: Environment) -> dict[str, Any]:
    """Keys from the environment that was handed in; without any, the library looks for a role of the machine."""
    names = {name: name.removeprefix("AWS_").lower() for name in CREDENTIALS}
    return {option: environment[name] for name, option in names.items() if environment.get(name)}


def _story(error: Exception, secrets: Sequence[str], where: str) -> StoreError:
    """One line that says what the server or the network said."""
    text = str(error)
    code, status = _REASON.search(text), _STATUS.search(text)
    if code or status:
        number = int(status[1]) if status else 0
        trouble = _BY_CODE.get(code[1]) if code else None
        trouble = trouble or _BY_STATUS.get(number) or (Trouble.SERVER if number >= 500 else Trouble.UNKNOWN)
        said = " ".join(part for part in (code[1], code[2] or "") if part) if code else ""
        line = f"{where}: HTTP {number or '?'} {said}"
    else:
        trouble, what = _without_answer(text)
        line = f"{where}: {what}"
    for secret in secrets:
        line = line.replace(secret, "***")
    return StoreError(trouble, " ".join(line.split())[:400])


# What the library says when no answer came, the first that fits: it does not always add which step of it failed.
_WITHOUT_ANSWER: Sequence[tuple[tuple[str, ...], Trouble, str]] = (
    (("kind: timeout", "timed out", "timedout"), Trouble.TIMEOUT, "no answer within the time limit"),
    (("dns error", "failed to lookup"), Trouble.UNREACHABLE, "the name of the endpoint is not known"),
    (("kind: connect", "connection refused", "tcp connect error"), Trouble.UNREACHABLE, "no connection"),
    (
        ("reset", "closed", "incomplete", "kind: body", "kind: decode", "broken pipe"),
        Trouble.CUT,
        "the connection was cut off",
    ),
    (("certificate", "tls"), Trouble.REFUSED, "no secure connection: the certificate is not trusted"),
    (("error sending request",), Trouble.UNREACHABLE, "the request could not be sent"),
)


def _without_answer(text: str) -> tuple[Trouble, str]:
    low = text.lower()
    for words, trouble, what in _WITHOUT_ANSWER:
        if any(word in low for word in words):
            return trouble, what
    return Trouble.UNKNOWN, text.splitlines()[0][:300] if text else "no reason given"
