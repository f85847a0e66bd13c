"""Runs parts, each a process with a limit of its own, remembers which have finished, and says how it went.

A part ends with 0 (passed), 77 (skipped: its last line says why) or anything else (failed). A part that
outlives its limit is killed with all that it started, counts as failed for this run, and is run again by
the next one. One that was skipped is run again too: the machine may have what it lacked.
"""

import ctypes
import dataclasses
import json
import os
import signal
import subprocess
import time

SKIPPED_CODE = 77
FINISHED = ("passed", "failed")
# Exit codes of a run.
PASSED, FAILED, USAGE, NO_GPU, UNSUITED, NOT_ALL, BROKEN, STOPPED = 0, 1, 2, 3, 4, 5, 6, 130
TAIL_LINES = 40
# With less than this left, a part is not begun.
LEAST_SECONDS = 5
# For processes that were killed to be gone.
KILL_SECONDS = 20
SET_CHILD_SUBREAPER = 36  # Of prctl(2).


@dataclasses.dataclass
class Part:
    """`command` is run in `out`; `result` names the kind of file that it leaves there as NAME.json: "gtest" or "figures"."""

    name: str
    title: str
    seconds: int
    command: list
    result: str = ""
    environment: dict = dataclasses.field(default_factory=dict)


class State:
    """What is known of the parts of one program, by their names; of another program it knows nothing."""

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

    def finished(self, name):
        return self.parts.get(name, {}).get("status") in FINISHED

    def keep(self, name, facts):
        """Whole or not at all, whenever this process ends."""
        self.parts[name] = facts
        with open(self._path + ".new", "w", encoding="utf-8") as file:
            json.dump({"identity": self._identity, "parts": self.parts}, file, indent=2)
        os.replace(self._path + ".new", self._path)


def adopt_orphans():
    """From now on the processes that a part leaves behind are children of this one, whatever sessions they made for themselves."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def parents():
    """Process -> its parent, for all that run or wait to be reaped."""
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                found[int(name)] = int(file.read().rsplit(")", 1)[1].split()[1])
        except OSError:
            pass  # It has ended.
    return found


def descendants():
    """What this process has started, and what that has."""
    known = parents()
    found, new = set(), {os.getpid()}
    while new:
        new = {process for process, parent in known.items() if parent in new} - found
        found |= new
    return found


def kill_all_but(spared):
    """Kills and reaps this process's descendants; how many would not end."""
    end = time.monotonic() + KILL_SECONDS
    while True:
        # Once more as long as there are any: they may start others meanwhile.
        left = descendants() - spared
        if not left or time.monotonic() > end:
            return len(left)
        for process in left:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for process in left:
            try:
                os.waitpid(process, os.WNOHANG)
            except ChildProcessError:
                pass  # Another's child: it comes here when that one is gone.
        time.sleep(0.01)


def count_gtest(path, log):
    """(cases that passed, failed, were skipped) of GoogleTest's JSON, and the skips' reasons, which its log alone has."""
    with open(path, encoding="utf-8") as file:
        suites = json.load(file)["testsuites"]
    passed, failed, skipped = 0, 0, 0
    for case in (case for suite in suites for case in suite["testsuite"]):
        if case.get("failures"):
            failed += 1
        elif case.get("result") == "SKIPPED":
            skipped += 1
        else:
            passed += 1
    return passed, failed, skipped, reasons_in(log)


def reasons_in(log):
    """What tests said that skipped themselves: the lines between "FILE:LINE: Skipped" and "[  SKIPPED ]"."""
    found, said = [], None
    for line in log:
        if said is not None and line.startswith("[ "):
            found += [" ".join(filter(None, said))]
            said = None
        elif said is not None:
            said.append(line.strip())
        elif line.endswith(": Skipped"):
            said = []
    return [reason for reason in found if reason]


def judge(part, code, out, log):
    """What a part that has ended came to; `log` is all that it said."""
    facts = {"status": {0: "passed", SKIPPED_CODE: "skipped"}.get(code, "failed"), "note": ""}
    if facts["status"] == "skipped":
        facts["note"] = log[-1] if log else ""
    elif facts["status"] == "failed":
        facts["note"] = f"ended with {code}"
    path = os.path.join(out, part.name + ".json")
    if not part.result or facts["status"] == "skipped":
        return facts
    try:
        if part.result == "gtest":
            passed, failed, skipped, reasons = count_gtest(path, log)
            facts["cases"] = {"passed": passed, "failed": failed, "skipped": skipped}
            if failed:
                facts["status"] = "failed"
            elif not passed + skipped:
                facts.update(status="failed", note="no case: none of the suite has such a name")
            elif facts["status"] == "passed" and not passed:
                facts.update(status="skipped", note=reasons[0] if reasons else "without a reason")
        else:
            with open(path, encoding="utf-8") as file:
                facts["figures"] = json.load(file)
    except (FileNotFoundError, json.JSONDecodeError, KeyError) as error:
        facts.update(status="failed", note=f"{facts['note'] or 'ended well'}, but left no result: {error}")
    return facts


def run_part(part, out, seconds):
    """Runs it for at most so long; its facts."""
    began = time.monotonic()
    log = os.path.join(out, part.name + ".log")
    path = os.path.join(out, part.name + ".json")
    if os.path.exists(path):
        os.remove(path)
    adopt_orphans()
    spared = descendants()
    with open(log, "w", encoding="utf-8") as file:
        try:
            process = subprocess.Popen(part.command, cwd=out, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
                                       env={**os.environ, **part.environment}, start_new_session=True)
        except OSError as error:
            return {"status": "failed", "note": str(error), "seconds": 0, "tail": []}
        try:
            code = process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            stuck = kill_all_but(spared)
            process.poll()
    with open(log, encoding="utf-8", errors="replace") as file:
        said = file.read().splitlines()
    facts = {"status": "timed out", "note": f"no end within {seconds:.0f} s"}
    if code is not None:
        facts = judge(part, code, out, said)
    if stuck:
        facts.update(status="failed", note=f"{facts['note']}; {stuck} of its processes do not end".lstrip("; "))
    facts["seconds"] = round(time.monotonic() - began, 1)
    facts["tail"] = said[-TAIL_LINES:] if facts["status"] != "passed" else []
    return facts


def run(parts, out, identity, seconds, fresh=False, say=print, stamp=None):
    """Runs what has not finished, for at most so long in all; (exit code, facts by name). What it runs has the stamp's facts."""
    os.makedirs(out, exist_ok=True)
    state = State(out, identity, fresh)
    end = time.monotonic() + seconds
    facts = {}
    for part in parts:
        if state.finished(part.name):
            facts[part.name] = state.parts[part.name]
            say(f"{part.name}: {facts[part.name]['status']} before")
            continue
        left = end - time.monotonic()
        if left < LEAST_SECONDS:
            facts[part.name] = {"status": "not run", "note": "no time was left", "seconds": 0, "tail": []}
            say(f"{part.name}: not run, no time is left")
            continue
        facts[part.name] = run_part(part, out, min(part.seconds, left))
        # One that was cut short because the whole was is as good as not run.
        if facts[part.name]["status"] == "timed out" and left < part.seconds:
            facts[part.name].update(status="not run", note="the time was up")
        facts[part.name].update(stamp or {})
        state.keep(part.name, facts[part.name])
        note = f" ({facts[part.name]['note']})" if facts[part.name]["note"] else ""
        say(f"{part.name}: {facts[part.name]['status']} in {facts[part.name]['seconds']} s{note}")
    return exit_code(facts), facts


def exit_code(facts):
    statuses = {fact["status"] for fact in facts.values()}
    if statuses & {"failed", "timed out"}:
        return FAILED
    return NOT_ALL if "not run" in statuses else PASSED
