"""Texts of `stoker help TOPIC`. Every line that begins with two blanks and `stoker` is an example.

A test parses each example with its verb's parser.
"""

from __future__ import annotations

# Older tools, whose users look for help by the tool's name.
TOOLS = ("simple_gpu_scheduler", "gpu_task_scheduler", "gpupeasy", "gpulimit")
TOPICS = (
    "queue",
    "states",
    "selectors",
    "dependencies",
    "time",
    "preemption",
    "gpus",
    "config",
    "hooks",
    "policies",
    *TOOLS,
)
_ALIASES = {"simple_hypersearch": "simple_gpu_scheduler", "gputaskscheduler": "gpu_task_scheduler"}

_TEXTS = {
    "queue": """\
The queue: jobs start by priority, then by their place, then by age. A job that needs several GPUs keeps
the free ones until it has them all; only what is over in time may pass it. `stoker why` explains every
wait.

  stoker add -p 5 python urgent.py    a higher priority runs first
  stoker ls                           what runs, what waits, what ended last
  stoker why 12                       why job 12 does not run yet
  stoker move 12                      to the front; stoker move 12 3 to the third place
  stoker set 12 priority=5            the same for a whole priority
  stoker start 12                     as the very next, whatever else holds it back
  stoker hold 12                      not before stoker release 12
  stoker pause --queue                start nothing more; what runs goes on
  stoker resume --queue               go on
""",
    "states": """\
A job is always in one of these states; `stoker ls -s STATE` lists those in one.

{states}
  stoker ls -s failed,lost    what needs a look
  stoker why 12               what stands behind a state
""",
    "selectors": """\
Verbs take jobs by id, by name, by state and by project.

  stoker show 12                 an id
  stoker kill 1,2,5-9            several, and ranges
  stoker log @                   the job that was added last
  stoker show train              a name, if only one job has it
  stoker show vision/train       of a project
  stoker show vision/train/12    with its id, to be sure
  stoker kill -s waiting         all in a state
  stoker rm -P vision            all of a project
  stoker retry -P vision -s failed    both together
  stoker hold --all              all that fit the verb
""",
    "dependencies": """\
A job can wait for others: for their success (--after), or just for their end (--after-any). If one does
not succeed, those that need it are skipped, and those that need them; its retry revives them all.

  stoker add -N prep python prepare.py           first
  stoker add -N train --after prep python t.py   when prep has succeeded
  stoker add --after-any train python clean.py   when train has ended, however
  stoker set 12 after=7,8                        for a job that waits already
  stoker set 12 after=none                       wait for no job
  stoker why train                               what it waits for, or why it was skipped
  stoker retry prep                              revives what was skipped for its sake
""",
    "time": """\
Durations are 90s, 2h, 1d12h, 1.5h or HH:MM:SS. Moments are +10m, 22:00 (the next such time), or a date:
2027-01-31, 2027-01-31T08:00. A time limit ends a job politely: its signal first, KILL after its grace.

  stoker add --begin 22:00 python night.py           not before ten in the evening
  stoker add --begin +90m python later.py            not before an hour and a half from now
  stoker add -t 2h python train.py                   ended after two hours
  stoker add -t 2h --requeue python train.py         it waits again instead, behind the others
  stoker add --retries 3 --backoff 1m python flaky.py    again after 1, 2 and 4 minutes
  stoker set 12 begin=none timeout=4h                changed later
""",
    "preemption": """\
A job that is preempted gets its signal (TERM), KILL when its grace time is over, and waits again. However
it exits, it has not failed. $STOKER_CHECKPOINT_DIR is the same folder for all attempts of a job, and
$STOKER_ATTEMPT counts them: save there, and look there first.

  stoker add --preemptible python sweep.py          may be pushed out
  stoker add --preempt python urgent.py             may push out preemptible jobs
  stoker add --signal USR1 --grace 2m python t.py   how it is asked, and for how long
  stoker add -t 1h --requeue python t.py            an hour at a time, taking turns
  stoker preempt 12                                 make room by hand
""",
    "gpus": """\
The queue uses every GPU that is not in use, or those that are named. They come and go while jobs run;
what runs on one is never touched.

  stoker gpus                         all GPUs, who uses them, what the queue does there
  stoker daemon start --gpus 0,1      use these (remembered)
  stoker gpus drain 1                 start nothing more there
  stoker gpus add 1                   use it again, or a new one
  stoker gpus remove 1                have it no longer
  stoker reserve 2 --for 4h           keep two for yourself, where others take turns
  stoker config gpus.vision 0,1       a project runs on these alone
  stoker add -g 2 python big.py       a job on two GPUs
  stoker add -g 0 python light.py     a job on none
""",
    "config": """\
Settings count at once and are remembered.

  stoker config                    all of them
  stoker config keep.days 30       change one
  stoker config keep.days --reset  back to its default
  stoker config limit.vision 2     at most two jobs of a project at once
  stoker config gpus.vision 0,1    its GPUs

{settings}""",
    "hooks": """\
Commands of yours run when a job has ended: on-finish always, on-fail if it did not succeed.
They find STOKER_JOB_ID, STOKER_NAME, STOKER_PROJECT, STOKER_STATE, STOKER_REASON, STOKER_ATTEMPT and
STOKER_LOG in their environment. One that fails or hangs (a minute) is told in stoker status, and the
queue goes on.

  stoker config on-fail 'echo "$STOKER_NAME: $STOKER_REASON" | mail -s Stoker me@example.org'
  stoker config on-finish 'touch /data/done/$STOKER_JOB_ID'
  stoker config notify 'tgram://TOKEN/CHAT'     through Apprise: pip install 'stoker[notify]'
  stoker config on-fail --reset                 no more
""",
    "policies": """\
Who decides what starts where: the default policy, or one of your own, a function that an installed package
names in the entry point group stoker.policies. Every plan is checked before it is carried out; one that
breaks a rule is refused, told, and the default policy takes over.

  stoker config policy mine       the entry point's name
  stoker config policy default    back

docs/explanation/policies.md has the signature and an example.
""",
    # The migration pages in short: a test looks for each example on the page of its tool.
    "simple_gpu_scheduler": """\
simple_gpu_scheduler and simple_hypersearch are installed with Stoker and work as they did: same flags, same
lines, same order. Natively:

  stoker run gpu_commands.txt --gpus 0,1,2        a command on each GPU; < becomes an argument
  stoker run gpu_commands.txt --gpus 0+1,2+3      two GPUs for each command, as --gpus 0,1 2,3
  stoker run gpu_commands.txt -j 2 --gpus 0,1     two commands share a GPU, as --gpus 0 0 1 1
  stoker run --shell login                        by your login shell instead of /bin/sh
  stoker run -0 --gpus 0                          commands of several lines, each with a NUL byte behind it

In place of simple_hypersearch; without --print the runs are queued, with -n 5 five of them are drawn:

  stoker sweep --print --method random 'python3 train_dnn.py --lr {lr} --bs {bs}' lr=0.1,0.2 bs=32,64

More: docs/how-to/migrate/simple_gpu_scheduler.md
""",
    "gpu_task_scheduler": """\
The package gpu_task_scheduler is installed with Stoker: scripts that import GPUTaskScheduler, GPUTask and
ConfigManager run as they are. Natively, with test_config as `parameters` and global_config as `fixed`
in a sweep file:

  stoker daemon start --gpus 0,1             "gpu": ["0", "1"]
  stoker daemon restart --gpus 0+1,2+3       "gpu": [["0", "1"], ["2", "3"]]
  stoker sweep -f sweep.yaml                 start(): what has succeeded before is not run again
  stoker sweep -f sweep.yaml --rerun all     "force_rerun": True
  stoker log 1                               worker.log
  stoker results sweep                       in place of a ConfigManager that collects results

In Python: stoker.sweep(MyTask, blocks), with class MyTask(stoker.Task).
More: docs/how-to/migrate/gpu_task_scheduler.md
""",
    "gpupeasy": """\
GPUPeasy's batches and routes are here: a job has a name, a file for its output and a shell command.
startserver.py and startgui.py become:

  stoker daemon start --gpus 0,1,2,3              the server; the first stoker add starts it too
  stoker web                                      the page, on this machine alone; prints its link
  stoker web --host lab1 --port 4004              the page for your network, at GPUPeasy's old port
  stoker add --batch jobs.txt                     NAME;;OUTFILE;;COMMAND;;; per job, known by its ;;;
  stoker add --batch -                            the same, pasted; Ctrl-D ends it
  stoker ls -s failed                             its list of failed jobs; so with waiting and done
  stoker resume --queue                           go on after jobs that all failed alike were paused

Its routes (addnewjob, jobinfo/ID, …) are under /gpupeasy/ of the daemon's socket.
More: docs/how-to/migrate/gpupeasy.md
""",
    "gpulimit": """\
gpulimit, gpulimitc and gpulimit_server are installed with Stoker and take the words you know; stoker ls
shows the same tasks. Ids count from 0 there and from 1 here; priority N there is 5 - N here. Natively:

  stoker add -p 4 sleep 600                          gpulimit add --priority=1 sleep 600
  stoker add -o './{index}.log' python3 main.py      gpulimit add --logpath="./" python3 main.py
  stoker show 1                                      gpulimit show 0
  stoker log 1                                       gpulimit log 0; stoker log daemon: log main
  stoker kill 2                                      gpulimit kill 1
  stoker retry 2                                     gpulimit start 1, if it was killed or has failed
  stoker why 2                                       gpulimit debug 1
  stoker config                                      gpulimit set
  stoker rm -s done                                  gpulimit clean complete

More: docs/how-to/migrate/gpulimit.md
""",
}


def find_topic(word: str) -> str | None:
    """Return the topic for a word, an older tool's name in any spelling; None if there is none."""
    name = word.lower().replace("-", "_")
    name = _ALIASES.get(name, name)
    return name if name in TOPICS else None


def explain(topic: str) -> str:
    """Return the text of a topic."""
    text = _TEXTS[topic]
    if "{states}" in text:
        return text.replace("{states}", _states())
    return text.replace("{settings}", _settings()) if "{settings}" in text else text


def _states() -> str:
    from stoker.core.lifecycle import MEANING

    return "".join(f"  {state.value:<10} {meaning}\n" for state, meaning in MEANING.items())


def _settings() -> str:
    from stoker.engine.config import ENTRIES, OF_PROJECTS

    entries = {**ENTRIES, **{f"{prefix}PROJECT": entry for prefix, entry in OF_PROJECTS.items()}}
    return "".join(
        f"  {name:<14} {entry.meaning} (default: {entry.default})\n"
        for name, entry in entries.items()
    )
