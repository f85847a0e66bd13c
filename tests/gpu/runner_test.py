"""Parts as processes: how they end, what they leave behind, and what they came to."""

import os
import signal
import subprocess
import sys
import time
import unittest
from unittest import mock

from tests.end_to_end.harness.waiting import runs, wait_for
from tests.gpu import results, runner
from tests.gpu.fake_parts import WAIT, Case, fake
from tests.gpu.runner import Part

GTEST = {"testsuites": [{"testsuite": [
    {"name": "a", "result": "COMPLETED"},
    {"name": "b", "result": "SKIPPED"},
]}]}
# Output of GoogleTest 1.12, whose JSON has no reasons.
SKIPS = """print("[ RUN      ] A.a\\nfile.cc:3: Skipped\\n\\n[  SKIPPED ] A.a (0 ms)")
print("[ RUN      ] A.b\\nfile.cc:4: Skipped\\nno such thing\\nhere\\n[  SKIPPED ] A.b (0 ms)")
print("[  SKIPPED ] 2 tests, listed below:")"""


class RunnerTest(Case):
    def test_a_failing_part_does_not_stop_the_others(self):
        code, facts = self.go([
            fake("bad", "print('oh'); raise SystemExit(3)"),
            Part("absent", "no such program", 5, ["/no/such/program"]),
            fake("good", ""),
            fake("lacking", "print('first'); print('no torch here'); raise SystemExit(77)"),
        ])
        self.assertEqual(code, runner.FAILED)
        self.assertEqual([facts[name]["status"] for name in ("bad", "absent", "good", "lacking")],
                         ["failed", "failed", "passed", "skipped"])
        self.assertEqual((facts["bad"]["note"], facts["bad"]["tail"]), ("ended with 3", ["oh"]))
        self.assertEqual(facts["lacking"]["note"], "no torch here")
        self.assertEqual(self.go([fake("good", "")])[0], runner.PASSED)

    def test_a_part_is_killed_at_its_limit_with_what_it_started_and_run_again(self):
        line = "import subprocess; subprocess.Popen(['sleep', '100']); open('began', 'a').write('x'); print('on', flush=True); "
        hanging = fake("hangs", line + WAIT, seconds=5)
        began = time.monotonic()
        code, facts = self.go([hanging, fake("good", "")])
        self.assertLess(time.monotonic() - began, 60)
        self.assertEqual((code, facts["hangs"]["status"], facts["good"]["status"]), (runner.FAILED, "timed out", "passed"))
        self.assertEqual(facts["hangs"]["tail"], ["on"])
        self.go([hanging])
        self.assertEqual(os.path.getsize(os.path.join(self.out, "began")), 2)

    def test_nothing_outlives_a_part_whatever_session_it_is_in(self):
        # Like programs of the end-to-end tests: a separate session, and here a parent that has
        # ended too.
        deep = "import os, subprocess; child = subprocess.Popen(['sleep', '1000'], start_new_session=True); " \
               "open('pids', 'a').write(f'{child.pid} {os.getpid()} '); print('on', flush=True); "
        between = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {deep + WAIT!r}], " \
                  "start_new_session=True, stdout=subprocess.PIPE).stdout.readline(); "
        for name, end, status in (("hangs", WAIT, "timed out"), ("ends", "", "passed")):
            _, facts = self.go([fake(name, between + end, seconds=10 if end else 60)])
            self.assertEqual(facts[name]["status"], status, facts[name])
        with open(os.path.join(self.out, "pids"), encoding="utf-8") as file:
            pids = [int(word) for word in file.read().split()]
        self.assertEqual(len(pids), 4)
        for pid in pids:
            with self.assertRaises(ProcessLookupError):
                os.kill(pid, 0)

    def test_a_runner_that_is_stopped_stops_its_parts(self):
        process, started = self.start_hanging()
        process.terminate()
        _, said = process.communicate(timeout=60)
        self.assertEqual((process.returncode, said), (runner.STOPPED, "tests/gpu/run.sh: stopped; what has finished is kept\n"))
        self.assertFalse(started & set(runner.parents()))

    def test_a_runner_that_is_killed_leaves_no_part(self):
        process, started = self.start_hanging()
        process.kill()
        process.communicate(timeout=60)
        wait_for(lambda: not any(map(runs, started)), 60, lambda: f"an end of {list(filter(runs, started))}")

    def start_hanging(self):
        """A runner of two parts, and the processes of both."""
        hanging = f"import subprocess; subprocess.Popen(['sleep', '1000'], start_new_session=True); print('on', flush=True); {WAIT}"
        text = f"""import sys
from tests.gpu import run, runner, schedule
parts = [runner.Part(name, "", 100, [sys.executable, "-c", {hanging!r}]) for name in ("one", "other")]
run.main = lambda out: schedule.run(parts, out, "one", 100, jobs=2)
sys.exit(run.guarded({self.out!r}))
"""
        process = subprocess.Popen([sys.executable, "-c", text], env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
                                   stderr=subprocess.PIPE, text=True)
        for log in (os.path.join(self.out, name + ".log") for name in ("one", "other")):
            wait_for(lambda log=log: os.path.exists(log) and os.path.getsize(log), 60, "a log")
        known = runner.parents()
        started, new = set(), {process.pid}
        while new:
            new = {child for child, parent in known.items() if parent in new}
            started |= new
        # For each part: its keeper, the part, and its child.
        self.assertEqual(len(started), 6)
        return process, started

    def test_a_part_whose_keeper_is_killed_ends_and_stops_no_other(self):
        killing = fake("killing", f"import os, signal; print(os.getpid(), flush=True); os.kill(os.getppid(), signal.SIGKILL); {WAIT}")
        code, facts = self.go([killing, fake("good", "")])
        self.assertEqual((code, facts["killing"]["status"], facts["good"]["status"]), (runner.BROKEN, "broken", "passed"))
        with self.assertRaises(ProcessLookupError):
            os.kill(int(self.left_in("killing.log")), 0)

    def test_a_fault_of_the_runner_is_no_part_s_and_stops_no_other(self):
        with mock.patch.object(results, "judge", side_effect=[AssertionError("judged ill")]):
            # Each is judged by a process of its own, in which the first call is the first.
            code, facts = self.go([fake("bad", "")])
        self.assertEqual((code, facts["bad"]["status"]), (runner.BROKEN, "broken"))
        self.assertIn("judged ill", facts["bad"]["note"])
        self.assertEqual(self.go([fake("bad", "")])[0], runner.PASSED)

    def test_what_a_killed_part_has_measured_is_kept(self):
        measured = [{"name": "f", "value": 2, "unit": "x"}]
        for name, written, kept in (("some", measured, measured), ("none", None, None), ("cut", {"name": "f"}, None)):
            _, facts = self.go([fake(name, WAIT, "figures", seconds=6, write=written)])
            self.assertEqual((facts[name]["status"], facts[name].get("figures")), ("timed out", kept))

    def test_figures_that_are_none_are_a_failure_of_their_part(self):
        for number, figures in enumerate(([{"name": "f"}], [{"name": "f", "value": "2", "unit": "x"}], {"name": "f"})):
            _, facts = self.go([fake(f"f{number}", "", "figures", write=figures)])
            self.assertEqual(facts[f"f{number}"]["status"], "failed", figures)

    def test_the_first_failures_are_told(self):
        failures = [{"name": f"case/{n}", "classname": "Suite", "failures": [{"failure": f"{n}: " + "x" * 3000}]} for n in range(7)]
        _, facts = self.go([
            fake("cases", "print('\\n'.join(map(str, range(300)))); raise SystemExit(1)", "gtest", write={"testsuites": [{"testsuite": failures}]}),
            fake("lines", "print('\\n'.join(map(str, range(300)))); raise SystemExit(1)"),
        ])
        self.assertEqual([failure["name"] for failure in facts["cases"]["failures"]], [f"Suite.case/{n}" for n in range(5)])
        for n, failure in enumerate(facts["cases"]["failures"]):
            self.assertEqual((failure["message"][:4], len(failure["message"])), (f"{n}: x", 1500))
        self.assertEqual(facts["cases"]["tail"], [str(n) for n in range(260, 300)])
        self.assertEqual(facts["lines"]["tail"], [str(n) for n in range(40)] + ["[140 lines more]"] + [str(n) for n in range(180, 300)])

    def test_what_a_machine_cannot_do_is_skipped_with_its_words(self):
        words = "print('========= Error: Device not supported. See the documentation.'); "
        for number, (code, status) in enumerate(((words + "raise SystemExit(9)", "skipped"), (words, "skipped"),
                                                 ("raise SystemExit(9)", "failed"), (words + WAIT, "timed out"))):
            part = fake(f"s{number}", code, "gtest", seconds=4 if WAIT in code else 30, unable="Device not supported")
            facts = self.go([part])[1][part.name]
            self.assertEqual(facts["status"], status)
            self.assertEqual(facts["note"] == "Error: Device not supported. See the documentation.", status == "skipped")

    def test_a_part_that_fails_is_seen_to_whatever_the_parent_ignored(self):
        text = f"""import sys
from tests.gpu import run, runner, schedule
part = runner.Part("bad", "", 100, [sys.executable, "-c", "raise SystemExit(3)"])
run.main = lambda out: schedule.run([part], out, "one", 100)[0]
sys.exit(run.guarded({self.out!r}))
"""
        done = subprocess.run([sys.executable, "-c", text], env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
                              stdout=subprocess.PIPE, text=True, timeout=60,
                              preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        self.assertEqual(done.returncode, runner.FAILED, done.stdout)

    def test_results_are_read(self):
        failures = {"testsuites": [{"testsuite": [{"name": "a", "failures": [{}], "result": "COMPLETED"}]}]}
        skips = {"testsuites": [{"testsuite": GTEST["testsuites"][0]["testsuite"][1:]}]}
        _, facts = self.go([
            fake("mixed", "", "gtest", write=GTEST),
            fake("failing", "", "gtest", write=failures),
            fake("skipping", SKIPS, "gtest", write=skips),
            fake("silently", "print('a.cc:3: Skipped\\n\\n[  SKIPPED ] A.a')", "gtest", write=skips),
            fake("silent", "", "gtest"),
            fake("nothing", "", "gtest", write={"testsuites": []}),
            fake("measures", "", "figures", write=[{"name": "f", "value": 2, "unit": "x"}]),
        ])
        self.assertEqual(facts["mixed"]["cases"], {"passed": 1, "failed": 0, "skipped": 1})
        self.assertEqual([facts[name]["status"] for name in ("mixed", "failing", "skipping", "silent", "nothing", "measures")],
                         ["passed", "failed", "skipped", "failed", "failed", "passed"])
        self.assertEqual(facts["skipping"]["note"], "no such thing here")
        self.assertEqual(facts["skipping"]["tail"][-1], "[  SKIPPED ] 2 tests, listed below:")
        self.assertEqual((facts["silently"]["status"], facts["silently"]["note"]), ("skipped", "without a reason"))
        self.assertEqual(facts["measures"]["figures"][0]["value"], 2)


if __name__ == "__main__":
    unittest.main()
