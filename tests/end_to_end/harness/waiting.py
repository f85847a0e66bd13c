"""How a test waits, and for what it often does."""

import threading
import time


def wait_for(condition, seconds, what):
    """The first true value of `condition`, asked again and again until `seconds` have passed."""
    pause, deadline = threading.Event(), time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not in {seconds} s: {what() if callable(what) else what}")
        pause.wait(0.02)


def stat_of(pid):
    """State and parent of a process, or nothing."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            fields = file.read().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return fields[0], int(fields[1])


def runs(pid):
    """True if the process runs. A zombie has ended."""
    stat = stat_of(pid)
    return stat is not None and stat[0] != "Z"
