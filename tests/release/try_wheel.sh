#!/bin/sh
# Installs a wheel in a new environment of each Python in $PYTHONS (default: 3.10 to 3.14, those that are there), and
# runs a smoke test with it: the commands, a queue whose daemon is stopped again, and the Python API.
set -eu
wheel=$1
size=$(wc -c < "$wheel")
[ "$size" -le 2000000 ] || { echo "$wheel has $size bytes: does it hold files that do not belong in it?"; exit 1; }
python3 -m zipfile -l "$wheel" | grep '^hydra_plugins/stoker_launcher/launcher.py ' >/dev/null \
  || { echo "$wheel has no Hydra plugin: name src/hydra_plugins in pyproject.toml"; exit 1; }
here=$(cd "$(dirname "$0")" && pwd)
tried=
for python in ${PYTHONS:-python3.10 python3.11 python3.12 python3.13 python3.14}; do
  command -v "$python" >/dev/null && "$python" -c 'import venv' || continue
  scratch=$(mktemp -d)
  "$python" -m venv "$scratch/venv"
  "$scratch/venv/bin/pip" install --quiet --disable-pip-version-check "$wheel"
  (cd "$scratch" && PATH="$scratch/venv/bin:$PATH" STOKER_HOME="$scratch/home" sh "$here/smoke.sh")
  rm -rf "$scratch"
  tried="$tried $python"
  echo "$python: the wheel works ($size bytes)"
done
[ -n "$tried" ] || { echo "there is no Python to try the wheel with: PYTHONS='python3' make dist"; exit 1; }
