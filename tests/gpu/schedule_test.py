"""Tests which parts run at the same time, in which order, and which are left to another run."""

import os
import re
import time
import unittest
from unittest import mock

from tests.gpu import runner, schedule
from tests.gpu.fake_parts import WAIT, Case, fake


def noted(name, code="", **fields):
    """A part that leaves a note of its begin and of its end."""
    note = "import os; note = lambda sign: os.write(os.open('notes', os.O_CREAT | os.O_APPEND | os.O_WRONLY), " \
           f"(sign + '{name} ').encode()); note('+')\n"
    return fake(name, note + code + "\nnote('-')", **fields)


def meeting(other):
    """Waits until the other part has begun, too."""
    return f"import re, sys, threading, time; end = time.monotonic() + 15\nwhile not re.search(r'[+]{other} ', open('notes').read()):\n" \
           "    threading.Event().wait(0.02)\n    if time.monotonic() > end: sys.exit(1)"


class ScheduleTest(Case):
    def most_beside_one_another(self):
        most, now = 0, set()
        for sign, name in re.findall(r"([+-])(\w+) ", self.left_in("notes")):
            now = now | {name} if sign == "+" else now - {name}
            most = max(most, len(now))
        return most

    def test_parts_of_a_stage_run_beside_one_another(self):
        code, facts = self.go([noted("a", meeting("b")), noted("b", meeting("a"))], jobs=2)
        self.assertEqual(code, runner.PASSED, facts)

    def test_no_more_of_them_than_are_allowed(self):
        pause = "import threading; threading.Event().wait(0.3)"
        for jobs in (1, 2):
            self.assertEqual(self.go([noted(name, pause) for name in "abcde"], jobs=jobs, fresh=True)[0], runner.PASSED)
            self.assertLessEqual(self.most_beside_one_another(), jobs)
            os.remove(os.path.join(self.out, "notes"))
        with mock.patch.object(os, "sched_getaffinity", side_effect=[range(16), range(6), range(1), range(64)]):
            self.assertEqual([schedule.default_jobs() for _ in range(4)], [8, 3, 1, 8])

    def test_what_measures_runs_alone(self):
        pause = "import threading; threading.Event().wait(0.3)"
        alone = [noted(name, pause, alone=name in "bd") for name in "abcdef"]
        self.assertEqual(self.go(alone, jobs=4)[0], runner.PASSED)
        notes = self.left_in("notes")
        for name in "bd":
            self.assertIn(f"+{name} -{name} ", notes)

    def test_a_stage_begins_when_the_one_before_has_ended(self):
        pause = "import threading; threading.Event().wait(0.5)"
        stages = [noted("a", pause, stage="1"), noted("b", stage="1"), noted("c", pause, stage="2"), noted("d", stage="2")]
        self.assertEqual(self.go(stages, jobs=4)[0], runner.PASSED)
        notes = self.left_in("notes")
        self.assertLess(max(notes.index(end) for end in ("-a", "-b")), min(notes.index(begin) for begin in ("+c", "+d")))

    def test_parts_beside_one_another_are_killed_each_at_its_limit(self):
        began = time.monotonic()
        code, facts = self.go([fake("a", WAIT, seconds=3), fake("b", ""), fake("c", WAIT, seconds=4)], jobs=3)
        self.assertLess(time.monotonic() - began, 50)
        self.assertEqual((code, [facts[name]["status"] for name in "abc"]), (runner.FAILED, ["timed out", "passed", "timed out"]))

    def test_results_are_in_the_order_of_the_parts(self):
        # By then the facts of the other part are stored.
        slow = "import threading\nwhile 'quick' not in open('state.json').read(): threading.Event().wait(0.02)"
        wait_for_state = "import os, threading\nwhile not os.path.exists('state.json'): threading.Event().wait(0.02)\n"
        told = []
        code, facts = self.go([fake("slow", wait_for_state + slow), fake("quick", "")], jobs=2,
                              told=lambda facts: told.append([(name, fact["status"]) for name, fact in facts.items()]))
        self.assertEqual((code, list(facts)), (runner.PASSED, ["slow", "quick"]))
        self.assertEqual(told, [[("slow", first), ("quick", second)] for first, second in
                                (("not run", "not run"), ("not run", "passed"), ("passed", "passed"))])

    def test_what_probably_hangs_has_little_time(self):
        with mock.patch.object(schedule, "DOUBTED_SECONDS", 2):
            for number, (check, limit) in enumerate((("raise SystemExit(1)", 2), ("", 5))):
                _, facts = self.go([fake(f"check{number}", check, stage="check"),
                                    fake(f"hangs{number}", WAIT, seconds=5, doubted_after=f"check{number}")])
                facts = facts[f"hangs{number}"]
                self.assertEqual((facts["status"], facts["note"]), ("timed out", f"no end within {limit} s"))

    def probe(self, code):
        return fake("gpu_probe", "open('probed', 'a').write('x'); " + code)

    def test_a_gpu_that_answers_after_a_part_that_hung_goes_on(self):
        code, facts = self.go([fake("bad", "raise SystemExit(1)"), fake("hangs", WAIT, seconds=2), fake("good", "")], probe=self.probe(""))
        self.assertEqual((code, facts["good"]["status"], list(facts)), (runner.FAILED, "passed", ["bad", "hangs", "good"]))
        # The GPU is not probed after a part that only fails.
        self.assertEqual(self.left_in("probed"), "x")

    def test_a_gpu_that_does_not_answer_ends_it_all(self):
        for number, end in enumerate(("print('no GPU'); raise SystemExit(3)", WAIT)):
            probe = self.probe(end)
            probe.seconds = 2 if end == WAIT else 20
            all_parts = [fake("hangs", WAIT, seconds=2), fake("beside", WAIT, seconds=100), fake("good", "", stage="2")]
            began = time.monotonic()
            code, facts = self.go(all_parts, probe=probe, jobs=2, fresh=True)
            self.assertLess(time.monotonic() - began, 50)
            why = "the GPU does not answer after hangs"
            self.assertEqual((code, facts["hangs"]["status"]), (runner.FAILED, "timed out"))
            for name in ("beside", "good"):
                self.assertEqual((facts[name]["status"], facts[name]["note"]), ("not run", why))
            wanted = ("failed", f"{why}: ended with 3") if number == 0 else ("timed out", f"{why}: no end within 2 s")
            self.assertEqual((facts["gpu_probe"]["status"], facts["gpu_probe"]["note"]), wanted)
        # Once they answer, parts begin again.
        code, facts = self.go([fake("beside", ""), fake("good", "")], probe=probe)
        self.assertEqual(code, runner.PASSED)

    def test_what_hung_is_run_again_after_all_others(self):
        all_parts = [noted("hangs", WAIT, seconds=5), noted("skips", "raise SystemExit(77)"), noted("good")]
        self.assertEqual(self.go(all_parts)[1]["hangs"]["status"], "timed out")
        # One for which there is too little time is none that does not hang.
        for seconds, least in ((1, 5), (3, 0)):
            with mock.patch.object(schedule, "LEAST_SECONDS", least):
                self.assertEqual(self.go(all_parts, seconds)[1]["hangs"]["status"], "not run")
        os.remove(os.path.join(self.out, "notes"))
        _, facts = self.go(all_parts)
        self.assertEqual(self.left_in("notes"), "+skips +hangs ")
        self.assertEqual(list(facts), ["hangs", "skips", "good"])

    def test_what_has_finished_is_not_run_again_unless_it_is_to_be(self):
        counting = [fake("counts", "open('count', 'a').write('x')")]
        for identity, fresh, wanted in (("one", False, 1), ("one", False, 1), ("two", False, 2), ("two", True, 3)):
            self.assertEqual(self.go(counting, fresh=fresh, identity=identity)[0], runner.PASSED)
            self.assertEqual(os.path.getsize(os.path.join(self.out, "count")), wanted, (identity, fresh))

    def test_a_part_that_was_skipped_is_asked_again(self):
        lacking = "open('asked', 'a').write('x'); print('no torch here'); raise SystemExit(77)"
        self.assertEqual(self.go([fake("peers", lacking)])[1]["peers"]["tail"], ["no torch here"])
        self.assertEqual(self.go([fake("peers", lacking)])[1]["peers"]["status"], "skipped")
        self.assertEqual(os.path.getsize(os.path.join(self.out, "asked")), 2)
        self.assertEqual(self.go([fake("peers", "")])[1]["peers"]["status"], "passed")
        self.assertEqual(self.go([fake("peers", lacking)])[1]["peers"]["status"], "passed")

    def test_without_time_parts_wait_for_the_next_run(self):
        good = [fake("one", ""), fake("two", "")]
        code, facts = self.go(good, seconds=1)
        self.assertEqual((code, facts["one"]["status"]), (runner.NOT_ALL, "not run"))
        self.assertEqual(self.go(good)[0], runner.PASSED)
        # One that the end of all cuts short has not had its time.
        slow = fake("slow", WAIT, seconds=50)
        code, facts = self.go([slow], seconds=6)
        self.assertEqual((code, facts["slow"]["status"]), (runner.NOT_ALL, "not run"))

    def test_a_broken_state_begins_anew(self):
        self.go([fake("one", "")])
        with open(os.path.join(self.out, "state.json"), "w", encoding="utf-8") as file:
            file.write("{")
        self.assertEqual(self.go([fake("one", "")])[0], runner.PASSED)
        self.assertNotIn("before", self.said[-1])


if __name__ == "__main__":
    unittest.main()
