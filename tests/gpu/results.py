"""The result of a finished part, from its exit code, its log and its file."""

import json

SKIPPED_CODE = 77
# Lines of a log: the first failures are more informative than the last.
FIRST_LINES, LAST_LINES = 40, 120
# Limits for GoogleTest's failures. Its log repeats their names at its end.
MOST_FAILURES, FAILURE_CHARACTERS, SUMMARY_LINES = 5, 1500, 40


def excerpt(lines, first=FIRST_LINES, last=LAST_LINES):
    """The beginning and the end of a log, with a line that summarizes the part in between."""
    if len(lines) <= first + last:
        return lines
    return [*lines[:first], f"[{len(lines) - first - last} lines more]", *lines[-last:]]


def reasons_in(log):
    """The reasons of skipped tests: the lines between "FILE:LINE: Skipped" and "[  SKIPPED ]"."""
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


def read_gtest(path, log, facts):
    """GoogleTest's JSON; the skips' reasons are in its log alone."""
    with open(path, encoding="utf-8") as file:
        suites = json.load(file)["testsuites"]
    passed, skipped, failures = 0, 0, []
    for case in (case for suite in suites for case in suite["testsuite"]):
        if case.get("failures"):
            failures.append(case)
        elif case.get("result") == "SKIPPED":
            skipped += 1
        else:
            passed += 1
    facts["cases"] = {"passed": passed, "failed": len(failures), "skipped": skipped}
    if failures:
        facts["status"] = "failed"
        facts["failures"] = first_failures(failures)
    elif not passed + skipped:
        facts.update(status="failed", note="no case: none of the suite has such a name")
    elif facts["status"] == "passed" and not passed:
        facts.update(status="skipped", note=next(iter(reasons_in(log)), "without a reason"))


def first_failures(cases):
    """A list of {"name", "message"}: a case may have several."""
    found = [{"name": f"{case.get('classname', '?')}.{case['name']}", "message": failure.get("failure", "")[:FAILURE_CHARACTERS]}
             for case in cases for failure in case["failures"]]
    return found[:MOST_FAILURES]


def read_figures(path):
    with open(path, encoding="utf-8") as file:
        found = json.load(file)
    if any(not isinstance(figure["value"], (int, float)) or not figure["name"] + figure["unit"] for figure in found):
        raise ValueError("a figure that is none")
    return found


def judge(part, code, path, log, seconds):
    """Its facts; `code` is None where it was killed after so many seconds, and `log` is all that it said."""
    facts = {"status": {0: "passed", SKIPPED_CODE: "skipped", None: "timed out"}.get(code, "failed"), "note": ""}
    if code is None:
        facts["note"] = f"no end within {seconds:.0f} s"
    elif facts["status"] == "skipped":
        facts["note"] = log[-1] if log else ""
    elif facts["status"] == "failed":
        facts["note"] = f"ended with {code}"
    unable = next((line for line in log if part.unable and part.unable in line), None)
    if unable is not None and code is not None:
        return {"status": "skipped", "note": unable.strip("= ")}
    if not part.result or facts["status"] == "skipped":
        return facts
    try:
        if part.result == "figures":
            facts["figures"] = read_figures(path)
        elif code is not None:
            read_gtest(path, log, facts)
    except (OSError, ValueError, KeyError, TypeError) as error:
        # A killed part need not have left a result.
        if code is not None:
            facts.update(status="failed", note=f"{facts['note'] or 'ended well'}, but left no result: {error}")
    return facts


def shown(facts, log):
    """The lines of its log that a report has."""
    if facts["status"] == "passed":
        return []
    return log[-SUMMARY_LINES:] if facts.get("failures") else excerpt(log)
