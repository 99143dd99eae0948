"""Tell systemd how we are (sd_notify): one datagram. Does nothing where no systemd listens."""

import os
import socket


class Notifier:
    def __init__(self) -> None:
        self._address = os.environ.get("NOTIFY_SOCKET", "")

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
