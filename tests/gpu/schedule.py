"""Runs parts in stages, remembers which have finished, and says how it went.

A part that timed out is run again by the next run, after all others. One that was skipped is run again too:
the machine may have what it lacked.
"""

import itertools
import json
import os
import select
import time

from tests.gpu import files, runner

FINISHED = ("passed", "failed")
# With less than this left, a part is not begun.
LEAST_SECONDS = 5
# For a part that probably hangs.
DOUBTED_SECONDS = 20
MOST_JOBS = 8


def default_jobs():
    """Half of the CPUs are a part's own threads'."""
    return max(1, min(MOST_JOBS, len(os.sched_getaffinity(0)) // 2))


class State:
    """The state of the parts of one program, by name. Ignores states of other programs."""

    def __init__(self, out, identity, fresh=False):
        self._path = os.path.join(out, "state.json")
        self._identity = identity
        self.parts = {}
        if not fresh:
            self.parts = self._load()

    def _load(self):
        try:
            with open(self._path, encoding="utf-8") as file:
                known = json.load(file)
        except (FileNotFoundError, json.JSONDecodeError):
            return {}
        return known["parts"] if known.get("identity") == self._identity else {}

    def status(self, name):
        return self.parts.get(name, {}).get("status")

    def keep(self, name, facts):
        """Whole or not at all, whenever this process ends."""
        self.parts[name] = facts
        files.replace(self._path, json.dumps({"identity": self._identity, "parts": self.parts}, indent=2))


def not_run(why):
    return {"status": "not run", "note": why, "seconds": 0, "tail": []}


class Schedule:
    """`told` is called with all facts whenever there are new ones. `probe` is a part that passes as
    long as parts can run at all."""

    def __init__(self, out, state, seconds, *, jobs=1, probe=None, say=print, stamp=None, told=lambda facts: None):
        self._out, self._state, self._jobs, self._probe = out, state, max(1, jobs), probe
        self._say, self._stamp, self._told = say, stamp or {}, told
        self._end = time.monotonic() + seconds
        self._running = {}
        self._stopped = ""
        self._spared = runner.descendants()
        # Facts of every part, in the given order.
        self.facts = {}

    def run(self, parts):
        runner.adopt_orphans()
        self.facts = {part.name: not_run("it has not begun") for part in parts}
        due = []
        for part in parts:
            if self._state.status(part.name) in FINISHED:
                self.facts[part.name] = self._state.parts[part.name]
                self._say(f"{part.name}: {self.facts[part.name]['status']} before")
            else:
                due.append(part)
        self._told(self.facts)
        # A machine that hangs in one part has reported the others by then.
        late = {part.name for part in due if self._state.status(part.name) == "timed out"}
        due.sort(key=lambda part: part.name in late)
        try:
            for _, stage in itertools.groupby(due, key=lambda part: (part.name in late, part.stage)):
                self._run_stage(list(stage))
        except BaseException:
            self._kill_all()
            raise

    def _run_stage(self, waiting):
        while waiting or self._running:
            while waiting and self._has_room(waiting[0]):
                self._begin(waiting.pop(0))
            if self._running:
                ready, _, _ = select.select(list(self._running), [], [])
                for pipe in ready:
                    self._read(pipe)

    def _has_room(self, part):
        running = [keeper.part for keeper, _ in self._running.values()]
        if part.alone or any(each.alone for each in running):
            return not running
        return len(running) < self._jobs

    def _limit(self, part):
        doubted = self._state.status(part.doubted_after) in ("failed", "timed out")
        return min(part.seconds, DOUBTED_SECONDS) if doubted else part.seconds

    def _begin(self, part):
        left = self._end - time.monotonic()
        if self._stopped or left < LEAST_SECONDS:
            self.facts[part.name] = not_run(self._stopped or "no time was left")
            self._say(f"{part.name}: not run, {self.facts[part.name]['note']}")
            return
        self.facts[part.name] = not_run("it has not ended")
        limit = self._limit(part)
        keeper = runner.Keeper(part, self._out, min(limit, left))
        self._running[keeper.pipe] = (keeper, limit)

    def _read(self, pipe):
        # A part stopped by another one's end is no longer in the list.
        keeper, limit = self._running.get(pipe, (None, 0))
        facts = keeper.read() if keeper else None
        if facts is None:
            return
        del self._running[pipe]
        name = keeper.part.name
        if facts["status"] == "broken":
            runner.kill_all_but(self._spared | {each.pid for each, _ in self._running.values()})
        # One that was cut short because the whole was is as good as not run.
        if facts["status"] == "timed out" and keeper.seconds < limit:
            facts.update(status="not run", note="the time was up")
        facts.update(self._stamp)
        self.facts[name] = facts
        if facts["status"] not in ("not run", "broken"):
            self._state.keep(name, facts)
        note = f" ({facts['note']})" if facts["note"] else ""
        self._say(f"{name}: {facts['status']} in {facts['seconds']} s{note}")
        self._told(self.facts)
        if facts["status"] == "timed out":
            self._ask_after(name)

    def _ask_after(self, name):
        """A part that hangs may leave a GPU on which everything hangs. Nothing is started on such a
        GPU."""
        left = self._end - time.monotonic()
        if self._probe is None or self._stopped or left < LEAST_SECONDS:
            return
        keeper = runner.Keeper(self._probe, self._out, min(self._probe.seconds, left))
        facts = None
        while facts is None:
            facts = keeper.read()
        if facts["status"] == "passed":
            return
        self._stopped = f"the GPU does not answer after {name}"
        self.facts[self._probe.name] = {**facts, **self._stamp, "note": f"{self._stopped}: {facts['note']}"}
        self._say(f"{self._probe.name}: {facts['status']}, {self._stopped}")
        for other, _ in self._running.values():
            self.facts[other.part.name] = not_run(self._stopped)
        self._kill_all()
        self._told(self.facts)

    def _kill_all(self):
        runner.kill_all_but(self._spared)
        for pipe in self._running:
            os.close(pipe)
        self._running = {}


def run(parts, out, identity, seconds, fresh=False, **options):
    """Runs what has not finished, for at most so long in all; (exit code, facts by name). `options` are those of a Schedule, whose
    stamp's facts are those of what it runs."""
    os.makedirs(out, exist_ok=True)
    schedule = Schedule(out, State(out, identity, fresh), seconds, **options)
    schedule.run(parts)
    return exit_code(schedule.facts), schedule.facts


def exit_code(facts):
    statuses = {fact["status"] for fact in facts.values()}
    if "broken" in statuses:
        return runner.BROKEN
    if statuses & {"failed", "timed out"}:
        return runner.FAILED
    return runner.NOT_ALL if "not run" in statuses else runner.PASSED
