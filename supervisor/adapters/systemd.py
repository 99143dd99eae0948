"""What systemd is told (sd_notify, one datagram) and what it hands in (credentials). Nothing where there is none."""

import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path

_CREDENTIAL = re.compile(r"ciuic_([A-Z][A-Z0-9_]*)\Z")  # LoadCredential=ciuic:DIRECTORY names each file so


class Notifier:
    def __init__(self) -> None:
        self._address = os.environ.get("NOTIFY_SOCKET", "")

    @property
    def listened(self) -> bool:
        """Whether a systemd waits for our words."""
        return bool(self._address)

    def __call__(self, *lines: str) -> None:
        """Send, for example, `READY=1`, `STATUS=3 runs`, `WATCHDOG=1`, `STOPPING=1`."""
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
            out.setblocking(False)  # a systemd that does not read must not stop the supervision
            try:
                out.sendto("\n".join(lines).encode(), address)
            except OSError:
                return


def credentials(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that systemd loaded from files which only root can read; each file is named like its variable.

    Raises:
        OSError: a file cannot be read.
    """
    place = environment.get("CREDENTIALS_DIRECTORY", "")
    if not place:
        return {}
    files = [
        (found[1], path) for path in sorted(Path(place).iterdir()) if (found := _CREDENTIAL.match(path.name))
    ]
    return {name: path.read_text(encoding="utf-8").strip() for name, path in files}
