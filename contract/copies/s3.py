"""Copies in object storage, through obstore. One object a piece, so that nothing is ever half an object.

A shard of several pieces becomes `NAME.piece-00000`, `.piece-00001` …: `cat` of them in order is the shard. Each is
one signed PUT, which the server checks against the signature's SHA-256 and we against the MD5 that it answers.
"""

import contextlib
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from contract.config.copies import Mirror
from contract.copies.store import Environment, Piece, StoreError, Trouble, pieces
from contract.layout import parse_checkpoint_name
from contract.manifest import NAME, Shard

_KEY = "AWS_ACCESS_KEY_ID"
CREDENTIALS = (_KEY, "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
"""Names of the variables that hold what must appear nowhere."""
_MD5 = re.compile(r'"?([0-9a-f]{32})"?\Z')
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


@dataclass(frozen=True, kw_only=True)
class S3Held:
    """Objects below one checkpoint: key → (size, MD5, or "" where the server does not tell)."""

    base: str
    objects: Mapping[str, tuple[int, str]]

    def has(self, piece: Piece, data: bytes) -> bool:
        size, md5 = self.objects.get(self.base + key_of(piece), (-1, ""))
        return size == len(data) and md5 in {"", _md5(data)}

    def flaws(self, shards: Sequence[Shard]) -> str:
        for piece in (piece for shard in shards for piece in pieces(shard)):
            size, _ = self.objects.get(self.base + key_of(piece), (-1, ""))
            if size != piece.size:
                return f"{key_of(piece)} is missing" if size < 0 else f"{key_of(piece)} has {size} bytes"
        return ""


def key_of(piece: Piece) -> str:
    return piece.shard.path if piece.alone else f"{piece.shard.path}.piece-{piece.number:05d}"


class S3Store:
    """The copies of one run below `s3://bucket/prefix/run_id/`."""

    workers = 4

    def __init__(
        self, bucket: str, prefix: str, run_id: str, settings: Mirror, environment: Environment
    ) -> None:
        self._base = f"{prefix}/{run_id}/" if prefix else f"{run_id}/"
        self.where = f"s3://{bucket}/{self._base}"
        self._secrets = tuple(environment[name] for name in CREDENTIALS if environment.get(name))
        if settings.endpoint and not environment.get(_KEY):
            raise StoreError(
                Trouble.CREDENTIALS,
                f"no credentials: {_KEY} and AWS_SECRET_ACCESS_KEY are not in the environment of this process",
            )
        try:
            import obstore  # noqa: PLC0415 - an extra: only who mirrors needs it
            from obstore.store import S3Store as Client  # noqa: PLC0415
        except ImportError as error:
            raise StoreError(
                Trouble.LIBRARY, f"{error}; install the extra: pip install 'ciuic[s3]'"
            ) from None
        self._library: Any = obstore
        with self._told():
            self._client: Any = Client(bucket, **_options(bucket, settings), **_identity(environment))

    def names(self) -> list[str]:
        with self._told():
            found = self._library.list_with_delimiter(self._client, self._base)["common_prefixes"]
            # Some services go on listing a folder whose last object was removed.
            filled = [path.rstrip("/") for path in found if self._first_page(path)]
        return [name for path in filled if parse_checkpoint_name(name := path.rpartition("/")[2])]

    def manifest(self, name: str) -> bytes | None:
        return self._get(f"{self._base}{name}/{NAME}")

    def held(self, name: str) -> S3Held:
        base = f"{self._base}{name}/"
        found = {}
        with self._told():
            for page in self._client.list(base):
                for item in page:
                    md5 = _MD5.match(item["e_tag"] or "")
                    found[item["path"]] = (item["size"], md5[1] if md5 else "")
        return S3Held(base=base, objects=found)

    def write(self, name: str, piece: Piece, data: bytes) -> None:
        self._put(f"{self._base}{name}/{key_of(piece)}", data)

    def read(self, name: str, piece: Piece) -> bytes:
        key = f"{self._base}{name}/{key_of(piece)}"
        data = self._get(key)
        if data is None:
            raise StoreError(Trouble.MISSING, f"{key} is missing")
        return data

    def publish(self, name: str, manifest: bytes) -> None:
        self._put(f"{self._base}{name}/{NAME}", manifest)

    def retire(self, name: str) -> None:
        with self._told():
            self._client.delete([f"{self._base}{name}/{NAME}"])

    def clear(self, name: str) -> None:
        keys = list(self.held(name).objects)
        with self._told():
            self._client.delete(keys)

    def _first_page(self, path: str) -> list[Any]:
        return next(iter(self._client.list(path.rstrip("/") + "/", chunk_size=1)), [])

    def _put(self, key: str, data: bytes) -> None:
        with self._told():
            answer = self._library.put(self._client, key, data, use_multipart=False)
        told = _MD5.match(answer["e_tag"] or "")
        if told and told[1] != _md5(data):
            raise StoreError(Trouble.CORRUPT, f"{key} arrived with another checksum than it was sent with")

    def _get(self, key: str) -> bytes | None:
        try:
            with self._told():
                return bytes(self._library.get(self._client, key).bytes())
        except StoreError as error:
            if error.trouble is Trouble.MISSING and "NoSuchBucket" not in str(error):
                return None
            raise

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """What the library raises carries whole answers of the server: only what is understood goes on."""
        try:
            yield
        except Exception as error:
            raise _story(error, self._secrets, self.where) from None


def _options(bucket: str, settings: Mirror) -> dict[str, Any]:
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


def _md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


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


def _without_answer(text: str) -> tuple[Trouble, str]:
    low = text.lower()
    if "kind: timeout" in low or "timed out" in low or "timedout" in low:
        return Trouble.TIMEOUT, "no answer within the time limit"
    if "dns error" in low or "failed to lookup" in low:
        return Trouble.UNREACHABLE, "the name of the endpoint is not known"
    if "kind: connect" in low or "connection refused" in low or "tcp connect error" in low:
        return Trouble.UNREACHABLE, "no connection"
    if any(
        word in low for word in ("reset", "closed", "incomplete", "kind: body", "kind: decode", "broken pipe")
    ):
        return Trouble.CUT, "the connection was cut off"
    if "certificate" in low or "tls" in low:
        return Trouble.REFUSED, "no secure connection: the certificate is not trusted"
    return Trouble.UNKNOWN, text.splitlines()[0][:300] if text else "no reason given"
