#!/usr/bin/env bash
# Installs or removes the supervisor's unit: bash tools/service.sh install|uninstall
#   ROOT     directory of the runs (default: runs, here)
#   SYSTEM   not empty: a system service under PREFIX (default /usr/local), running as RUN_AS; else the user's own
#   VENV     environment with ciuic (default: .venv, here)
#   DESTDIR  put in front of every path that is written; then systemd is not told
set -euo pipefail
ACTION=${1:-}
VENV=$(realpath -m "${VENV:-.venv}")
ROOT=$(realpath -m "${ROOT:-${CIUIC_ROOT:-runs}}")
DESTDIR=${DESTDIR:-}
NAME=ciuic-supervisor.service

fail() { printf 'service: %s\n' "$*" >&2; exit 1; }

if [ -n "${SYSTEM:-}" ]; then
  template=supervisor/supervisor.service
  place="$DESTDIR${PREFIX:-/usr/local}/lib/systemd/system"
  control=(systemctl)
  secrets=/etc/ciuic/credentials
  as=${RUN_AS:-${SUDO_USER:-$(id -un)}}
  [ "$as" != root ] || [ -n "${RUN_AS:-}" ] || fail "who submits the runs? RUN_AS=USER"
else
  template=supervisor/supervisor-user.service
  place="$DESTDIR${XDG_CONFIG_HOME:-$HOME/.config}/systemd/user"
  control=(systemctl --user)
  secrets="${XDG_CONFIG_HOME:-$HOME/.config}/ciuic/supervisor.env"
  as=
fi

tell_systemd() { # only one that runs here can be told
  [ -z "$DESTDIR" ] && [ -d /run/systemd/system ] || return 0
  "${control[@]}" "$@" || fail "this failed: ${control[*]} $*"
}

case "$ACTION" in
  install)
    [ -x "$VENV/bin/ciuic" ] || fail "$VENV/bin/ciuic is missing: make setup"
    case "$ROOT$VENV" in *[[:space:]%\"\\#\&]*) fail "blanks, quotes and any of % # & \\ cannot stand in $ROOT or $VENV" ;; esac
    mkdir -p "$place"
    sed -e "s#^RequiresMountsFor=.*#RequiresMountsFor=$ROOT#" \
        -e "s#^WorkingDirectory=.*#WorkingDirectory=$ROOT#" \
        -e "s#^Environment=CIUIC_ROOT=.*#Environment=CIUIC_ROOT=$ROOT#" \
        -e "s#^ExecStart=.*#ExecStart=$VENV/bin/ciuic supervise#" \
        ${as:+-e "s#^User=.*#User=$as#"} "$template" >"$place/$NAME.new"
    mv "$place/$NAME.new" "$place/$NAME"
    if [ -n "$as" ]; then
      mkdir -p "$DESTDIR$secrets"
      chmod 700 "$DESTDIR$secrets"
    fi
    tell_systemd daemon-reload
    echo "installed $place/$NAME for $ROOT"
    if [ -n "$as" ]; then
      echo "keys: one file a variable in $secrets, for example CIUIC_WECOM_KEY"
    else
      echo "keys: lines such as CIUIC_WECOM_KEY=… in $secrets (chmod 600); to outlive your session: loginctl enable-linger"
    fi
    echo "start: ${control[*]} enable --now ciuic-supervisor"
    ;;
  uninstall)
    [ -e "$place/$NAME" ] || fail "$place/$NAME is not installed"
    tell_systemd disable --now ciuic-supervisor
    rm -f "$place/$NAME"
    tell_systemd daemon-reload
    echo "removed $place/$NAME; runs and $secrets stay"
    ;;
  *) fail "install or uninstall" ;;
esac
