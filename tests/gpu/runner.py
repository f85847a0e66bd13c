"""Parts, each a process with a limit of its own, of which nothing is left when it ends.

A part ends with 0 (passed), 77 (skipped: its last line says why) or anything else (failed). A part that
outlives its limit is killed with all that it started and counts as failed for this run.
"""

import contextlib
import ctypes
import dataclasses
import json
import os
import signal
import subprocess
import time
import traceback

from tests.gpu import results

# Exit codes of a run.
PASSED, FAILED, USAGE, NO_GPU, UNSUITED, NOT_ALL, BROKEN, STOPPED = 0, 1, 2, 3, 4, 5, 6, 130
# For processes that were killed to be gone.
KILL_SECONDS = 20
SET_PARENT_DEATH_SIGNAL, SET_CHILD_SUBREAPER = 1, 36  # Constants of prctl(2).


@dataclasses.dataclass
class Part:
    """`command` is run in `out`; `result` names the kind of file that it leaves there as NAME.json: "gtest" or "figures"."""

    name: str
    title: str
    seconds: int
    command: list
    result: str = ""
    environment: dict = dataclasses.field(default_factory=dict)
    # Parts of one stage run beside one another, after all of the stage before; those that measure run alone.
    stage: str = ""
    alone: bool = False
    # A part whose failure makes it likely that this one hangs.
    doubted_after: str = ""
    # The text in its log if this machine cannot run it, for any exit code.
    unable: str = ""


def control(option, value):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def adopt_orphans():
    """From now on the processes that a part leaves behind are children of this one, whatever sessions they made for themselves."""
    control(SET_CHILD_SUBREAPER, 1)


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


def descendants(spared=frozenset()):
    """Processes that this process has started, and their descendants, except those spared and
    theirs."""
    known = parents()
    found, new = set(), {os.getpid()}
    while new:
        new = {process for process, parent in known.items() if parent in new} - found - spared
        found |= new
    return found


def kill_all_but(spared):
    """Kills and reaps this process's descendants, but for those spared and theirs; how many would not end."""
    end = time.monotonic() + KILL_SECONDS
    while True:
        # Once more as long as there are any: they may start others meanwhile.
        left = descendants(spared)
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


def run_part(part, out, seconds):
    """Runs it for at most so long, in a process that has started nothing else; its facts."""
    began = time.monotonic()
    log, path = (os.path.join(out, part.name + end) for end in (".log", ".json"))
    if os.path.exists(path):
        os.remove(path)
    process = None
    with open(log, "w", encoding="utf-8") as file:
        try:
            process = subprocess.Popen(part.command, cwd=out, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
                                       env={**os.environ, **part.environment}, start_new_session=True)
            code = process.wait(timeout=seconds)
        except OSError as error:
            return {"status": "failed", "note": str(error), "seconds": 0, "tail": []}
        except subprocess.TimeoutExpired:
            code = None
        finally:
            stuck = kill_all_but(set())
            if process is not None:
                process.poll()
    with open(log, encoding="utf-8", errors="replace") as file:
        said = file.read().splitlines()
    facts = results.judge(part, code, path, said, seconds)
    if stuck:
        facts.update(status="failed", note=f"{facts['note']}; {stuck} of its processes do not end".lstrip("; "))
    facts["seconds"] = round(time.monotonic() - began, 1)
    facts["tail"] = results.shown(facts, said)
    return facts


@contextlib.contextmanager
def held_signals():
    """Signals that ask this process to stop wait for the end of the block."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield before
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Keeper:
    """A process that runs one part, kills what it leaves behind, and hands its facts back."""

    def __init__(self, part, out, seconds):
        """Nothing that it does depends on what else runs; it ends with its parent."""
        self.part, self.seconds = part, seconds
        self.pipe, writer = os.pipe()
        self._said = b""
        with held_signals() as signals:
            parent = os.getpid()
            self.pid = os.fork()
            if self.pid == 0:
                self._keep(out, writer, parent, signals)
        os.close(writer)

    def _keep(self, out, writer, parent, signals):
        """Never returns: what the parent would do next is none of this process's business."""
        try:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            control(SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)
            adopt_orphans()
            signal.pthread_sigmask(signal.SIG_SETMASK, signals)
            if os.getppid() != parent:
                return
            try:
                facts = run_part(self.part, out, self.seconds)
            except Exception as error:
                facts = broken(repr(error), traceback.format_exc().splitlines())
            with os.fdopen(writer, "w", encoding="utf-8") as file:
                json.dump(facts, file)
        finally:
            os._exit(0)

    def read(self):
        """Reads the part's output so far; its facts once they are complete."""
        more = os.read(self.pipe, 1 << 16)
        self._said += more
        if more:
            return None
        os.close(self.pipe)
        os.waitpid(self.pid, 0)
        try:
            return json.loads(self._said)
        except ValueError:
            return broken("the process that kept it was killed", ())


def broken(why, tail):
    return {"status": "broken", "note": f"the runner itself is at fault: {why}", "seconds": 0, "tail": list(tail)}
