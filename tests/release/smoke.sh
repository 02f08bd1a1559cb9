#!/bin/sh
# Uses an installed Stoker as a new user would. Expects `stoker` and `python` on the PATH, and STOKER_HOME.
set -eu
stoker --version
stoker demo > demo.txt
printf 'echo one\necho two\n' | stoker run --gpus 0,1 --logs logs
test "$(cat logs/2.log)" = two

stoker daemon start --gpus 0
trap 'stoker daemon stop >/dev/null' EXIT
stoker add -q echo from the queue
stoker wait
test "$(stoker log 1)" = "from the queue"
stoker sweep 'echo {lr}' lr=0.1,0.2 --name smoke > sweep.txt
stoker wait -P smoke
test "$(stoker results smoke --json | python -c 'import json, sys; print(len(json.load(sys.stdin)))')" -ge 2
stoker daemon stop
trap - EXIT

cat > api.py <<'PYTHON'
import stoker

with stoker.Executor(gpus="0,1") as executor:
    assert list(executor.map(abs, [-1, -2])) == [1, 2]
PYTHON
python api.py
