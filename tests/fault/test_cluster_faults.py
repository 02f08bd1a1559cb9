"""A queue over three boxes while parts of it are killed, cables are cut, and boxes lose their power."""

from __future__ import annotations

import importlib.util
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from cluster.cluster_fixture import Lab, until
from cluster.conftest import require_hosts
from cluster.netns_hosts import Hosts
from fault.conftest import Tell
from fault.home import Attempt
from fault.ledger import Verdict, judge
from fault.table import say
from fault.work import Event, Expected, read_events
from scale import long_only

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None,
        reason="Ray is not installed: pip install 'stoker[ray]'",
    ),
    pytest.mark.timeout(1800),
    long_only,
]
JOBS = 2000
SHORTEST_MS, LONGEST_MS = 50, 300
# A lease that runs out is no fault; with so short a one it happens.
LEASE_S = 10.0
SEEN_WITHIN_S = 10.0
BACK_WITHIN_S = 180.0
LONGEST_PAUSE_S = 1.0
KINDS = (
    *(
        "raylet",
        "agent",
        "supervisor",
        "daemon",
        "bridge",
        "ray_supervisor",
        "cut 4 s",
        "power off",
    ),
    *(
        "raylet",
        "agent",
        "supervisor",
        "daemon",
        "bridge",
        "ray_supervisor",
        "cut 4 s",
        "power off",
    ),
    *("cut 60 s", "raylet of the head", "supervisor", "agent"),
    *("gcs of the head", "ray_supervisor of the head", "power off the head", "restart"),
)
_ATTEMPTS = """
SELECT job, number, outcome, slots, pid, started_at_us, ended_at_us, status, reason
  FROM earlier_attempt
UNION ALL SELECT id, attempt, state, slots, pid, started_at_us, ended_at_us, status, reason FROM job
ORDER BY 1, 2
"""


@pytest.fixture
def lab(nvml_library: str) -> Iterator[Lab]:
    require_hosts()
    with Hosts(hosts=3, library=nvml_library) as hosts:
        lab = Lab(hosts, LEASE_S)
        yield lab
        say(lab.notices()[-6000:])


class Saboteur:
    """Does one thing after another to a cluster; what takes its time goes on meanwhile."""

    def __init__(self, lab: Lab, rng: random.Random) -> None:
        self._lab = lab
        self._rng = rng
        self._later: list[tuple[float, Callable[[], None]]] = []
        self.done: Counter[str] = Counter()
        self.seen_s: list[float] = []

    def strike(self, kind: str) -> None:
        """Do it to a box that is there, or to the head."""
        time.sleep(self._rng.uniform(0.0, LONGEST_PAUSE_S))  # to strike at any moment
        host = self._choose()
        say(f"{time.strftime('%H:%M:%S')} {kind} (h{host})")
        match kind:
            case "daemon" | "bridge":
                self._kill(0, kind)
            case "raylet of the head" | "gcs of the head" | "ray_supervisor of the head":
                self._kill(0, kind.split()[0])
            case "power off the head":
                self._lab.hosts.power_off(0)
                time.sleep(
                    self._rng.uniform(0.0, 2 * LEASE_S)
                )  # nothing else can be done meanwhile
                self._lab.hosts.power_on(0)
                self._lab.ok("status")
            case "restart":
                self._lab.ok("daemon", "restart")
            case "cut 4 s" | "cut 60 s":
                self._cut(host, float(kind.split()[1]))
            case "power off":
                self._power_off(host)
            case "ray_supervisor":
                self._kill(host, "ray_supervisor")
                self._at(2.0, lambda: self._rejoin(host))
            case _:
                self._kill(host, kind)
        self.done[kind] += 1

    def go_on(self) -> None:
        """Do what has fallen due."""
        due = [entry for entry in self._later if entry[0] <= time.monotonic()]
        self._later = [entry for entry in self._later if entry not in due]
        for _at, act in due:
            act()

    def make_good(self) -> None:
        """Have everything there again."""
        while self._later:
            self.go_on()
            time.sleep(0.1)
        self._lab.ok("status")
        for host in (1, 2):
            self._lab.until_there(host, BACK_WITHIN_S)

    def _choose(self) -> int:
        """A box that is there; boxes that are not come back while we wait."""

        def there() -> list[int]:
            self.go_on()
            if self._lab.pid(0, "daemon") is None:
                self._lab.ok("status")
            return [host for host in (1, 2) if self._lab.is_there(host)]

        return self._rng.choice(until(there, "a box is there", BACK_WITHIN_S))

    def _kill(self, host: int, part: str) -> None:
        """Kill a part as soon as there is one: a fault before may have ended it too."""

        def killed() -> bool:
            self.go_on()
            if self._lab.pid(0, "daemon") is None:
                self._lab.ok("status")
            return self._lab.kill(host, part)

        until(killed, f"h{host} has a {part}", BACK_WITHIN_S)

    def _cut(self, host: int, pause_s: float) -> None:
        at = time.monotonic()
        self._lab.hosts.cut(host)
        self._at(pause_s, lambda: self._lab.hosts.mend(host))
        if pause_s > SEEN_WITHIN_S:
            self._until_seen(host, at)

    def _power_off(self, host: int) -> None:
        at = time.monotonic()
        self._lab.hosts.power_off(host)
        self._until_seen(host, at)

        def power_on() -> None:
            self._lab.hosts.power_on(host)
            self._rejoin(host)

        self._at(self._rng.uniform(0.0, 2 * LEASE_S), power_on)

    def _until_seen(self, host: int, at: float) -> None:
        until(lambda: not self._lab.is_there(host), f"h{host} is away", 6 * SEEN_WITHIN_S)
        self.seen_s.append(time.monotonic() - at)

    def _rejoin(self, host: int) -> None:
        """As whoever looks after a box does after a restart; it or the head may be cut off for now."""
        if self._lab.hosts.hosts[host].init is None:
            return  # it is without power since, and joins when it is back
        if not self._lab.try_join(host):
            self._at(1.0, lambda: self._rejoin(host))

    def _at(self, delay_s: float, act: Callable[[], None]) -> None:
        self._later.append((time.monotonic() + delay_s, act))


def own_label(event: Event) -> Event:
    """With its GPU as it is on record."""
    return event._replace(gpus=f"{event.host}/{event.gpus}")


def judge_all(lab: Lab, jobs: int) -> Verdict:
    """What is wrong, by what jobs wrote and by what is on record."""
    attempts = [Attempt(*row) for row in lab.query(_ATTEMPTS)]
    events = [own_label(event) for event in read_events(lab.path("record"))]
    expected: dict[int, Expected | None] = {n: Expected(0, 1, 1) for n in range(1, jobs + 1)}
    verdict = judge(expected, attempts, events, may_lose=True)
    done = Counter(attempt.job for attempt in attempts if attempt.state == "done")
    verdict.lost.extend(f"job {job} has not succeeded" for job in expected if not done[job])
    verdict.twice.extend(f"job {job} succeeded {n} times" for job, n in done.items() if n > 1)
    for host in range(3):
        left = [w for w in lab.hosts.processes(host).values() if str(lab.path("record")) in w]
        verdict.leaked.extend(f"h{host} still runs {words}" for words in left)
    return verdict


def test_faults_of_all_kinds_lose_nothing_and_double_nothing_over_three_boxes(
    lab: Lab, job_program: str, tell: Tell
) -> None:
    rng = random.Random(10)
    kinds = list(KINDS)
    rng.shuffle(kinds)
    saboteur = Saboteur(lab, rng)
    share = -(-JOBS // len(kinds))
    record, lines = lab.path("record"), lab.path("lines")
    for kind in kinds:
        saboteur.go_on()
        work = [rng.randrange(SHORTEST_MS, LONGEST_MS) for _ in range(share)]
        lines.write_text("".join(f"{job_program} {record} {ms} 0\n" for ms in work))
        lab.ok("add", "-q", "--share", "never", "--retries", "9", "--batch", str(lines))
        saboteur.strike(kind)
    saboteur.make_good()
    lab.until_over()

    verdict = judge_all(lab, share * len(kinds))
    slowest_ms = round(1000 * max(saboteur.seen_s, default=0.0))
    again = lab.query("SELECT count(*) FROM earlier_attempt")[0][0]
    details = {**saboteur.done, "attempts that were lost and made again": again}
    tell("cluster of three boxes", len(kinds), verdict, **details, **{"ms, seen": slowest_ms})
    assert verdict.is_clean, f"{verdict}\n{lab.notices()[-3000:]}"
    assert slowest_ms <= 1000 * SEEN_WITHIN_S, saboteur.seen_s
