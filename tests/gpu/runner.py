"""Runs parts, each a process with a limit of its own, remembers which have finished, and says how it went.

A part ends with 0 (passed), 77 (skipped: its last line says why) or anything else (failed). A part that
outlives its limit is killed with all that it started, counts as failed for this run, and is run again by
the next one.
"""

import dataclasses
import json
import os
import signal
import subprocess
import time

SKIPPED_CODE = 77
FINISHED = ("passed", "failed", "skipped")
# Exit codes of a run.
PASSED, FAILED, USAGE, NO_GPU, UNSUITED, NOT_ALL = 0, 1, 2, 3, 4, 5
TAIL_LINES = 40
# With less than this left, a part is not begun.
LEAST_SECONDS = 5


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


def count_gtest(path):
    """(cases that passed, failed, were skipped; reasons of the skips) of GoogleTest's JSON."""
    with open(path, encoding="utf-8") as file:
        suites = json.load(file)["testsuites"]
    passed, failed, reasons = 0, 0, []
    for case in (case for suite in suites for case in suite["testsuite"]):
        if case.get("failures"):
            failed += 1
        elif case.get("result") == "SKIPPED":
            reasons += [skip["message"].strip().splitlines()[-1] for skip in case.get("skipped", [])] or [""]
        else:
            passed += 1
    return passed, failed, reasons


def judge(part, code, out, tail):
    """What a part that has ended came to."""
    facts = {"status": {0: "passed", SKIPPED_CODE: "skipped"}.get(code, "failed"), "note": ""}
    if facts["status"] == "skipped":
        facts["note"] = tail[-1] if tail else ""
    elif facts["status"] == "failed":
        facts["note"] = f"ended with {code}"
    path = os.path.join(out, part.name + ".json")
    if not part.result or facts["status"] == "skipped":
        return facts
    try:
        if part.result == "gtest":
            passed, failed, reasons = count_gtest(path)
            facts["cases"] = {"passed": passed, "failed": failed, "skipped": len(reasons)}
            if failed:
                facts["status"] = "failed"
            elif facts["status"] == "passed" and not passed:
                facts.update(status="skipped", note=reasons[0] if reasons else "no case")
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
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
    with open(log, encoding="utf-8", errors="replace") as file:
        tail = file.read().splitlines()[-TAIL_LINES:]
    facts = {"status": "timed out", "note": f"no end within {seconds:.0f} s"}
    if code is not None:
        facts = judge(part, code, out, tail)
    facts["seconds"] = round(time.monotonic() - began, 1)
    facts["tail"] = tail if facts["status"] not in ("passed", "skipped") else []
    return facts


def run(parts, out, identity, seconds, fresh=False, say=print):
    """Runs what has not finished, for at most so long in all; (exit code, facts by name)."""
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
        state.keep(part.name, facts[part.name])
        note = f" ({facts[part.name]['note']})" if facts[part.name]["note"] else ""
        say(f"{part.name}: {facts[part.name]['status']} in {facts[part.name]['seconds']} s{note}")
    return exit_code(facts), facts


def exit_code(facts):
    statuses = {fact["status"] for fact in facts.values()}
    if statuses & {"failed", "timed out"}:
        return FAILED
    return NOT_ALL if "not run" in statuses else PASSED
