#!/usr/bin/env bash
# Makes the environment: venv, pinned packages, DeepSpeed's CPU operators (so that no restart ever compiles).
set -euo pipefail
PYTHON=${PYTHON:-python3}
VENV=${VENV:-.venv}

fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# Everything that is missing is named at once, with one command for all of it.
missing=() packages=()
lacks() { missing+=("$1"); packages+=("$2"); }

if ! command -v "$PYTHON" >/dev/null; then
  lacks "Python 3.11 or later ($PYTHON)" "python3 python3-venv python3-dev"
else
  "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
    || fail "Python 3.11 or later is needed, $("$PYTHON" --version) was found; name another: make setup PYTHON=python3.11"
  "$PYTHON" -c 'import venv, ensurepip' 2>/dev/null || lacks "Python's venv module" python3-venv
  header=$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h
  [ -f "$header" ] || lacks "Python's headers ($header)" python3-dev
fi
command -v g++ >/dev/null || lacks "a C++ compiler (DeepSpeed builds an operator once)" g++
if [ ${#missing[@]} -gt 0 ]; then
  printf 'setup: missing: %s\n' "${missing[@]}" >&2
  fail "on Debian: apt-get install ${packages[*]}"
fi

started=$SECONDS
if [ ! -x "$VENV/bin/python" ]; then
  echo "setup: making $VENV"
  "$PYTHON" -m venv "$VENV"
fi
log="$VENV/setup.log"
: >"$log"
quietly() { "$@" >>"$log" 2>&1 || { tail -n 30 "$log" >&2; fail "this failed: $* (all of it: $log)"; }; }
# DeepSpeed's build imports from its own folder, which PYTHONSAFEPATH (the Makefile exports it) would forbid.
pip() { quietly env -u PYTHONSAFEPATH "$VENV/bin/python" -P -m pip install --disable-pip-version-check -c constraints.txt "$@"; }

echo "setup: installing pinned packages (a minute or two)"
# torch first and pinned: without the pin another package's range could pull a much larger build.
pip setuptools ninja torch
pip -e '.[train,s3,dev]'
echo "setup: building DeepSpeed's CPU operators once (g++ is silent for a minute or more; what it says goes to $log)"
TORCH_EXTENSIONS_DIR=$("$VENV/bin/python" -c 'import sys; print(sys.prefix)')/share/ciuic/torch_extensions
export TORCH_EXTENSIONS_DIR
quietly "$VENV/bin/python" -P -m trainer.ops
# Kept when it is there: another Python's library is another corpus, and runs may depend on this one.
if [ ! -f data/stdlib/index.json ]; then
  echo "setup: preparing the small corpus (Python's standard library) in data/stdlib"
  quietly "$VENV/bin/ciuic" trainer prepare-data data/stdlib --stdlib --cap-mb 8
fi
echo "setup: ready after $((SECONDS - started)) s"
