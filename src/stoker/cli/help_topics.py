"""What `stoker help TOPIC` says. Every line that begins with two blanks and `stoker` is an example.

A test reads each example with the parser of its verb, so that none goes stale.
"""

from __future__ import annotations

# Older tools whose users find their way here by the tool's name.
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

  stoker add -n prep python prepare.py           first
  stoker add -n train --after prep python t.py   when prep has succeeded
  stoker add --after-any train python clean.py   when train has ended, however
  stoker set 12 after=7,8                        for a job that waits already
  stoker set 12 after=none                       wait for nobody
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
The queue uses every GPU that nobody else uses, or those that are named. They come and go while jobs run;
what runs on one is never touched.

  stoker gpus                         all GPUs, who uses them, what the queue does there
  stoker daemon start --gpus 0,1      use these (remembered)
  stoker gpus drain 1                 start nothing more there
  stoker gpus add 1                   use it again, or a new one
  stoker gpus remove 1                have it no longer
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
Commands of yours run when a job has come to its end: on_finish always, on_fail if it did not succeed.
They find STOKER_JOB_ID, STOKER_NAME, STOKER_PROJECT, STOKER_STATE, STOKER_REASON, STOKER_ATTEMPT and
STOKER_LOG in their environment. One that fails or hangs (a minute) is told in stoker status, and the
queue goes on.

  stoker config on_fail 'echo "$STOKER_NAME: $STOKER_REASON" | mail -s Stoker me@example.org'
  stoker config on_finish 'touch /data/done/$STOKER_JOB_ID'
  stoker config notify 'tgram://TOKEN/CHAT'     through Apprise: pip install 'stoker[notify]'
  stoker config on_fail --reset                 no more
""",
    "policies": """\
Who decides what starts where: the default policy, or one of your own, a function that an installed package
names in the entry point group stoker.policies. Every plan is checked before it is carried out; one that
breaks a rule is refused, told, and the default policy takes over.

  stoker config policy mine       the entry point's name
  stoker config policy default    back

docs/explanation/policies.md has the signature and an example.
""",
}


def find_topic(word: str) -> str | None:
    """The topic that a word means, older tools' names in any spelling; None if it means none."""
    name = word.lower().replace("-", "_")
    name = _ALIASES.get(name, name)
    return name if name in TOPICS else None


def explain(topic: str) -> str:
    """The text of a topic."""
    if topic in TOOLS:
        from stoker.cli.older_tools import TEXTS

        return TEXTS[topic]
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
