"""The supervisor's own log: lines on stderr, with the time unless the journal of systemd adds it."""

import faulthandler
import logging
import os
import sys
from collections.abc import Callable


def line_log() -> Callable[[str], None]:
    """A function that writes one line. Also: a stack on stderr when systemd aborts us for being silent."""
    faulthandler.enable()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        logging.Formatter("%(message)s" if "JOURNAL_STREAM" in os.environ else "%(asctime)s %(message)s")
    )
    log = logging.getLogger("ciuic.supervisor")
    log.handlers = [handler]
    log.propagate = False
    log.setLevel(logging.INFO)
    return lambda text: log.info("%s", text.replace("\n", " | "))
