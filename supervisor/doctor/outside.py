"""What goes out of the cluster, only when asked: one test message to each receiver, one question to each store."""

import os

from contract.config import RunConfig
from contract.copies.store import StoreError
from contract.copies.target import Kind, open_store, wanted
from supervisor.alert_test import try_receivers
from supervisor.doctor.finding import Finding, State, ok, skipped

_NO_RUN = "doctor"  # a name no run has: its list of checkpoints is empty


def probe_alerts(config: RunConfig) -> list[Finding]:
    """Sends one message to each receiver of [alerts]."""
    receivers = config.alerts.receivers
    if not receivers:
        return [
            Finding(
                id="alerts",
                state=State.WARN,
                what="[alerts] names no receiver",
                why="nobody will be told anything",
                fix="make a group robot and name its key's variable in [alerts.wecom]",
            )
        ]
    return [
        ok(f"alerts.{trial.receiver}", "delivered")
        if trial.delivered
        else Finding(
            id=f"alerts.{trial.receiver}",
            state=State.FAIL,
            what=f"not delivered: {trial.reason}",
            why="alerts would not arrive either",
            fix=trial.hint,
        )
        for trial in try_receivers(receivers)
    ]


def probe_copies(config: RunConfig) -> list[Finding]:
    """Lists what a run that does not exist has there: credentials, address and bucket must be right for that."""
    kinds = wanted(config)
    if not kinds:
        return [skipped("copies", "the recipe asks for no copies of checkpoints")]
    return [_store(config, kind) for kind in kinds]


def _store(config: RunConfig, kind: Kind) -> Finding:
    try:
        store = open_store(config, kind, _NO_RUN, os.environ)
        store.names()
    except StoreError as error:
        return Finding(
            id=f"copies.{kind}",
            state=State.FAIL,
            what=str(error),
            why="checkpoints exist on one file system only until this works",
            fix="check [mirror] or [backup], the label ciuic.io/checkpoint-path, and AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        )
    return ok(f"copies.{kind}", f"{store.where} answers (reading; writing is not tried)")
