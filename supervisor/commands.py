"""Commands of the supervisor, mounted by the top-level command line. Importing this costs typer and nothing else."""

import typer

from supervisor import (
    commands_alert,
    commands_checkpoints,
    commands_demo,
    commands_diagnose,
    commands_doctor,
    commands_explain,
    commands_export,
    commands_logs,
    commands_operate,
    commands_profile,
    commands_replay,
    commands_report,
    commands_simulate,
    commands_status,
    commands_supervise,
)


def mount(app: typer.Typer) -> None:
    """Add every command to the command line."""
    app.command("demo")(commands_demo.demo)
    app.command("supervise")(commands_supervise.supervise)
    app.command("status")(commands_status.status)
    app.command("diagnose")(commands_diagnose.diagnose)
    app.command("doctor")(commands_doctor.doctor)
    app.command("explain")(commands_explain.explain)
    app.command("report")(commands_report.report)
    app.command("logs")(commands_logs.logs)
    app.command("alert-test")(commands_alert.alert_test)
    app.command("checkpoints")(commands_checkpoints.checkpoints)
    app.command("export")(commands_export.export)
    app.command("pause")(commands_operate.pause)
    app.command("resume")(commands_operate.resume)
    app.command("cancel")(commands_operate.cancel)
    app.command("set")(commands_operate.set_hot)
    app.command("dump")(commands_operate.dump)
    app.command("profile")(commands_profile.profile)
    app.command("ack")(commands_operate.ack)
    app.command("silence")(commands_operate.silence)
    app.command("replay")(commands_replay.replay)
    app.command("simulate")(commands_simulate.simulate)
