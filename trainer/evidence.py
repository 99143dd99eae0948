"""What a worker does for those who will ask where it stands: nothing until then, and nothing that needs its help.

Stacks on a signal come from C code, so that they appear also while another thread holds the interpreter. The flight
recorder needs the interpreter for a moment: a rank that waits in a collective has let go of it.
"""

import faulthandler
import logging
import os
import threading
from pathlib import Path
from typing import Any

from contract.evidence import FLIGHT, STACK_SIGNAL, STACKS, WAKE
from contract.page import VARIABLE

log = logging.getLogger(__name__)


def offer_evidence() -> None:
    """Be ready to be asked. Without an agent there is nobody who would."""
    page = os.environ.get(VARIABLE, "")
    if not page:
        return
    try:
        faulthandler.register(STACK_SIGNAL, file=Path(page + STACKS).open("w"), all_threads=True)  # noqa: SIM115
        os.mkfifo(page + WAKE, 0o600)
    except OSError as error:
        log.warning("no evidence can be taken from here: %s", error)
        return
    threading.Thread(target=_serve, args=(page,), name="ciuic-evidence", daemon=True).start()


def _serve(page: str) -> None:
    """Write the recorder's entries each time that a byte comes."""
    wake = os.open(page + WAKE, os.O_RDWR)  # with a writing end of our own it never reads as closed
    while os.read(wake, 1):
        aside = Path(f"{page}{FLIGHT}.new")
        aside.write_bytes(recorded())
        aside.replace(page + FLIGHT)


def recorded() -> bytes:
    """The flight recorder of this process as JSON: NCCL's where there is one, else Gloo's; b"" without either."""
    from torch._C import _distributed_c10d as c10d

    for name in ("_dump_nccl_trace_json", "_dump_fr_trace_json"):
        dump: Any = getattr(c10d, name, None)
        found: bytes = dump(True, False) if dump else b""
        if b'"entries":[{' in found:
            return found
    return b""
