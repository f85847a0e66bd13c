"""Runs every test in every variant and counts test cases; the program behind tools/test.

A variant is a way of building; docs/explanation/testing.md says which tests each runs. Every test of a variant is
listed before it runs, so that one which did not run is a failure and not a silence.
"""

import argparse
import collections
import dataclasses
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from urllib.parse import unquote, urlparse
from xml.etree import ElementTree

# Rooms whose locks clang's -Wthread-safety checks.
LOCKED_ROOMS = ("base", "server", "worker", "client")
# Variant -> tag of the tests that it runs. The normal one runs all but those that need another.
VARIANT_TAGS = {"asan": "asan", "tsan": "tsan", "fuzz": "fuzz"}
VARIANTS = ("style", "thread-safety", "normal", "asan", "tsan", "fuzz")
# A worker that is to compute on a GPU, and what it says where it was built without CUDA.
ASK_FOR_GPU = ("--coordinator", "127.0.0.1:1", "--device", "cuda:0")
WITHOUT_CUDA = "this program was built without CUDA"


@dataclasses.dataclass
class Case:
    """One test case: where, which, and how it ended."""

    variant: str
    target: str
    name: str
    outcome: str  # "passed", "failed" or "skipped"
    message: str = ""


def parse_test_xml(text):
    """(name, outcome, message) of every <testcase> of a JUnit XML text."""
    cases = []
    for case in ElementTree.fromstring(text).iter("testcase"):
        name = ".".join(filter(None, [case.get("classname"), case.get("name")]))
        bad = [child for child in case if child.tag in ("failure", "error")]
        skipped = case.find("skipped")
        if bad:
            cases.append((name, "failed", bad[0].get("message") or bad[0].text or ""))
        elif skipped is not None:
            cases.append((name, "skipped", skip_reason(skipped)))
        elif case.get("status") == "notrun":
            cases.append((name, "skipped", "disabled in its source"))
        else:
            cases.append((name, "passed", ""))
    return cases


def skip_reason(skipped):
    """GoogleTest puts FILE:LINE before the reason; one line is enough."""
    lines = (skipped.get("message") or skipped.text or "").strip().splitlines()
    if lines and re.fullmatch(r"\S+:\d+", lines[0]):
        lines = lines[1:]
    return " ".join(line.strip() for line in lines if line.strip()) or "no reason given"


def read_events(lines):
    """Parses Bazel's build events: {label: overall status}, {label: [path of test.xml]}."""
    status, xmls = {}, collections.defaultdict(list)
    for line in lines:
        event = json.loads(line)
        kind = event.get("id", {})
        if "testSummary" in kind and "testSummary" in event:
            status[kind["testSummary"]["label"]] = event["testSummary"]["overallStatus"]
        elif "testResult" in kind and "testResult" in event:
            for output in event["testResult"].get("testActionOutput", []):
                if output.get("name") == "test.xml" and "uri" in output:
                    path = unquote(urlparse(output["uri"]).path)
                    xmls[kind["testResult"]["label"]].append(path)
    return status, xmls


def cases_of_target(variant, target, status, xml_paths):
    """The cases of one target that should have run; at least one, whatever happened."""
    cases = []
    for path in xml_paths:
        try:
            with open(path, encoding="utf-8") as file:
                parsed = parse_test_xml(file.read())
        except (OSError, ElementTree.ParseError) as error:
            parsed = [("test.xml", "failed", str(error))]
        cases += [Case(variant, target, *case) for case in parsed]
    failed = any(case.outcome == "failed" for case in cases)
    if status != "PASSED" and not failed:
        reason = f"ended with {status}" if status else "did not run (its build failed?)"
        cases.append(Case(variant, target, "(target)", "failed", reason))
    elif not cases:
        cases.append(Case(variant, target, "(target)", "failed", "ran no test case"))
    return cases


def without_cuda(code, said):
    """Checks the exit of a worker without CUDA that was asked for a GPU: a description of the
    fault, or ""."""
    last = said.splitlines()[-1] if said else ""
    return "" if code == 1 and WITHOUT_CUDA in last else f"ended with {code}: {said}"


class Runner:
    """Runs variants through one Bazel command and collects their cases."""

    def __init__(self, bazel, extra_flags, patterns):
        self.bazel = bazel
        self.extra_flags = extra_flags
        self.patterns = patterns
        self.cases = []

    def query(self, expression):
        command = self.bazel + ["query", "--noshow_progress", expression]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise SystemExit(done.stderr + "bazel query failed: " + expression)
        return sorted(line for line in done.stdout.splitlines() if line.startswith("//"))

    def tests_of(self, variant):
        tests = "tests({})".format(" + ".join(self.patterns))
        if variant == "normal":
            return self.query(rf"attr(tags, '^((?!\b(manual|fuzz)\b).)*$', {tests})")
        return self.query(rf"attr(tags, '\b{VARIANT_TAGS[variant]}\b', {tests})")

    def execute(self, variant, command, targets):
        """Runs one Bazel command over targets; its exit code and its build events."""
        with tempfile.TemporaryDirectory() as folder:
            events = os.path.join(folder, "events.json")
            listed = os.path.join(folder, "targets")
            with open(listed, "w", encoding="utf-8") as file:
                file.write("\n".join(targets))
            flags = [] if variant == "normal" else [f"--config={variant}"]
            code = subprocess.call(
                self.bazel
                + [command, "--keep_going", f"--build_event_json_file={events}"]
                + ["--color=no", "--curses=no", "--show_progress_rate_limit=10"]
                + flags
                + self.extra_flags
                + [f"--target_pattern_file={listed}"],
                stdout=sys.stderr,
            )
            try:
                with open(events, encoding="utf-8") as file:
                    return code, *read_events(file)
            except OSError:
                return code, {}, {}

    def run_tests(self, variant):
        targets = self.tests_of(variant)
        if not targets:
            if "//..." in self.patterns:
                self.fail(variant, "(variant)", "no test carries its tag")
            return
        code, status, xmls = self.execute(variant, "test", targets)
        for target in targets:
            self.cases += cases_of_target(variant, target, status.get(target), xmls.get(target, []))
        if code != 0 and not self.failures(variant):
            self.fail(variant, "(bazel)", f"bazel test ended with {code}")

    def check_without_cuda(self):
        """One case: without a CUDA toolkit, no target needs the sources that are left out."""
        flags = ["build", "--nobuild", "--color=no", "--curses=no", "--repo_env=CUDA_HOME=none", *self.extra_flags, "//..."]
        done = subprocess.run(self.bazel + flags, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            self.fail("normal", "(no CUDA toolkit)", done.stderr)
        else:
            self.cases.append(Case("normal", "(no CUDA toolkit)", "", "passed"))

    def check_programs_without_cuda(self):
        """Programs that were built without a toolkit start, and say so where a GPU is asked for: one case.

        No folder of its own: all but the worker's link is the same with a toolkit and without.
        """
        quiet = ["--color=no", "--curses=no", "--ui_event_filters=-info,-stdout,-stderr", "--noshow_progress"]
        command = ["run", *quiet, "--repo_env=CUDA_HOME=none", *self.extra_flags, "//worker:annulus-worker", "--", *ASK_FOR_GPU]
        try:
            done = subprocess.run(self.bazel + command, stderr=subprocess.PIPE, text=True, timeout=900)
            outcome = done.returncode, done.stderr.strip()
        except subprocess.TimeoutExpired:
            outcome = None, "it did not end"
        wrong = without_cuda(*outcome)
        if wrong:
            self.fail("normal", "(programs without CUDA)", wrong)
        else:
            self.cases.append(Case("normal", "(programs without CUDA)", "", "passed"))

    def run_build(self, variant, targets):
        """A variant that is a build: one case."""
        if not targets:
            return
        code, _, _ = self.execute(variant, "build", targets)
        if code != 0:
            self.fail(variant, "(build)", f"bazel build ended with {code}")
        else:
            self.cases.append(Case(variant, "(build)", f"{len(targets)} targets", "passed"))

    def run_style(self):
        for command in (["tools/format", "--check"], ["tools/lint"]):
            code = subprocess.call(command, stdout=sys.stderr)
            outcome, message = ("failed", "what differs is above") if code else ("passed", "")
            self.cases.append(Case("style", " ".join(command), "", outcome, message))

    def run(self, variant):
        began = time.monotonic()
        print(f"==== {variant}", file=sys.stderr, flush=True)
        if variant == "style":
            self.run_style()
        elif variant == "thread-safety":
            rooms = " + ".join(f"//{room}/..." for room in LOCKED_ROOMS)
            self.run_build(variant, self.query(f"kind(cc_library, {rooms})"))
        else:
            everything = variant == "normal" and "//..." in self.patterns
            if everything:
                self.run_build_of_everything()
            self.run_tests(variant)
            if everything:  # Last: each change of the toolkit has every target analysed anew.
                self.check_without_cuda()
                self.check_programs_without_cuda()
        here = [case for case in self.cases if case.variant == variant]
        counts = collections.Counter(case.outcome for case in here)
        print(
            f"==== {variant}: {counts['passed']} passed, {counts['failed']} failed, "
            f"{counts['skipped']} skipped in {time.monotonic() - began:.0f} s",
            file=sys.stderr,
            flush=True,
        )

    def run_build_of_everything(self):
        self.run_build("normal", self.query("//... except attr(tags, '\\bmanual\\b', //...)"))

    def fail(self, variant, target, message):
        self.cases.append(Case(variant, target, "", "failed", message))

    def failures(self, variant=None):
        return [
            case
            for case in self.cases
            if case.outcome == "failed" and variant in (None, case.variant)
        ]


def report(cases, out=sys.stdout):
    """Skips by reason, then failures, then the one line that counts. Returns the exit code."""
    skips = collections.defaultdict(list)
    for case in cases:
        if case.outcome == "skipped":
            skips[case.message].append(case)
    for reason, skipped in sorted(skips.items()):
        first = skipped[0]
        more = f" and {len(skipped) - 1} more" if len(skipped) > 1 else ""
        print(f"SKIPPED {first.variant} {first.target} {first.name}{more}: {reason}", file=out)
    failed = [case for case in cases if case.outcome == "failed"]
    for case in failed:
        message = " | ".join(case.message.strip().splitlines()[:4])
        print(f"FAILED {case.variant} {case.target} {case.name}: {message}", file=out)
    passed = sum(case.outcome == "passed" for case in cases)
    print(f"{passed} passed, {len(failed)} failed", file=out, flush=True)
    return 1 if failed or passed == 0 else 0


def main():
    parser = argparse.ArgumentParser(prog="tools/test", description="Runs every test.")
    parser.add_argument(
        "--variant", action="append", choices=VARIANTS, help="only this one; may be repeated"
    )
    parser.add_argument(
        "patterns", nargs="*", default=["//..."], help="Bazel target patterns (default //...)"
    )
    options = parser.parse_args()
    runner = Runner(
        shlex.split(os.environ.get("BAZEL", "bazel")),
        shlex.split(os.environ.get("BAZEL_FLAGS", "")),
        options.patterns,
    )
    for variant in options.variant or VARIANTS:
        runner.run(variant)
    return report(runner.cases)


if __name__ == "__main__":
    sys.exit(main())
