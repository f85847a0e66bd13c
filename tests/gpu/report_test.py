"""The report: what it says, and that there is one however a run ends."""

import contextlib
import io
import json
import os
import signal
import unittest
from unittest import mock

from tests.gpu import report, run, runner, schedule
from tests.gpu.fake_parts import Case, Place, fake


GPU = {"device": "a GPU", "capability": 90, "description": "a GPU in a slot, driver 1", "multiprocessors": 1, "memory_bytes": 1}


class Built(Place):
    commit, digest, bundled_nccl = "abc", "def", None


class ReportTest(Case):
    def setUp(self):
        super().setUp()
        # run.guarded() sets them for a process of its own.
        for number in (signal.SIGTERM, signal.SIGCHLD):
            self.addCleanup(signal.signal, number, signal.getsignal(number))

    def test_a_report_of_several_runs_or_cards_says_so(self):
        ours = fake("bench", "", "figures", write=[{"name": "forward bf16 S8192 D128 full", "value": 300.0, "unit": "TFLOP/s"}])
        theirs = fake("peers", "", "figures", write=[{"name": "cudnn forward bf16 S8192 D128 full", "value": 600.0, "unit": "TFLOP/s"}])
        first, second, third = ({"run": run, "card": card} for run, card in (("monday", "A"), ("tuesday", "A"), ("friday", "B")))
        for stamps, words in (((first, first), "cuDNN, same card, same run"), ((first, second), "cuDNN, same card, another run"),
                              ((first, third), "cuDNN, another card, another run"), ((None, None), "cuDNN, card unknown, same run")):
            self.go([ours], stamp=stamps[0], fresh=True)
            _, facts = self.go([ours, theirs], stamp=stamps[1])
            told = report.write(self.out, stamps[1] and stamps[1]["run"], {}, "", facts, {name: "" for name in facts})
            self.assertEqual([figure["compared_to"] for figure in told["figures"] if figure.get("ratio")], [words])
            with open(os.path.join(self.out, "report.md"), encoding="utf-8") as file:
                self.assertEqual("| bench |  | passed (monday) |" in file.read(), stamps[0] != stamps[1])

    def test_the_verdict_on_a_selection_says_what_was_selected(self):
        self.assertEqual(run.verdict(runner.PASSED, None), "All parts passed or were skipped with a reason.")
        self.assertEqual(run.verdict(runner.PASSED, ["peers", "bench"]),
                         "Of bench, peers alone: All parts passed or were skipped with a reason.")

    def test_the_verdict_says_that_parts_have_not_run(self):
        facts = {"a": {"status": "failed"}, "b": {"status": "not run"}}
        self.assertEqual(run.verdict(runner.NOT_ALL, None, {"b": facts["b"]}), "Not all parts have run: run it again.")
        self.assertEqual(run.verdict(runner.FAILED, None, facts),
                         "Something failed, and not all parts have run: run it again for the others.")
        self.assertEqual(run.verdict(runner.FAILED, None, {"a": facts["a"]}), "Something failed.")

    def test_the_report_tells_it_all(self):
        ours = {"name": "forward bf16 S8192 D128 full", "value": 300.0, "unit": "TFLOP/s"}
        causal = {"name": "forward bf16 S8192 D128 causal", "value": 270.0, "unit": "TFLOP/s"}
        hopper = {"name": "hopper forward bf16 S8192 D128 full", "value": 480.0, "unit": "TFLOP/s"}
        narrow = [{"name": f"{kernel}forward bf16 S16384 D64 full", "value": 200.0, "unit": "TFLOP/s"} for kernel in ("", "hopper ")]
        their_narrow = {"name": "cudnn forward bf16 S16384 D64 full", "value": 400.0, "unit": "TFLOP/s"}
        through = {"name": "with-cudnn forward bf16 S8192 D128 full", "value": 540.0, "unit": "TFLOP/s"}
        theirs = {"name": "cudnn forward bf16 S8192 D128 full", "value": 600.0, "unit": "TFLOP/s"}
        backward = {"name": "backward bf16 S8192 D128 full", "value": 180.0, "unit": "TFLOP/s"}
        hopper_backward = {"name": "hopper backward bf16 S8192 D128 full", "value": 270.0, "unit": "TFLOP/s"}
        cudnn_backward = {"name": "cudnn backward bf16 S8192 D128 full", "value": 450.0, "unit": "TFLOP/s"}
        gemm = {"name": "gemm bf16 8192", "value": 750.0, "unit": "TFLOP/s"}
        decode = {"name": "decode bf16 S131072 D128", "value": 2400.0, "unit": "GB/s"}
        read = {"name": "read", "value": 3000.0, "unit": "GB/s"}
        _, facts = self.go([
            fake("bench", "", "figures", write=[ours, causal, hopper, through, backward, hopper_backward, decode, *narrow]),
            fake("peers", "", "figures", write=[theirs, gemm, cudnn_backward, read, their_narrow]),
            fake("bad", "print('why'); raise SystemExit(1)"),
        ])
        titles = {name: f"the part {name}" for name in facts}
        told = report.write(self.out, "2026-01-02", {"GPU": "a | b"}, "Something failed.", facts, titles)
        ratios = {figure["name"]: (figure["ratio"], figure["met"]) for figure in told["figures"] if figure.get("ratio")}
        self.assertEqual(ratios["forward bf16 S8192 D128 full / cudnn"], (0.5, True))
        self.assertEqual(ratios["hopper forward bf16 S8192 D128 full / cudnn"], (0.8, True))
        self.assertEqual(ratios["with-cudnn forward bf16 S8192 D128 full / cudnn"], (0.9, None))
        self.assertEqual(ratios["hopper forward bf16 S16384 D64 full / cudnn"], (0.5, False))
        self.assertEqual(ratios["forward bf16 S16384 D64 full / cudnn"], (0.5, None))
        self.assertEqual(ratios["backward bf16 S8192 D128 full / cudnn"], (0.4, False))
        self.assertEqual(ratios["hopper backward bf16 S8192 D128 full / cudnn"], (0.6, True))
        self.assertEqual(ratios["forward bf16 S8192 D128 full / GEMM"], (0.4, None))
        self.assertEqual(ratios["forward bf16 S8192 D128 causal / full"], (0.9, True))
        self.assertEqual(ratios["decode bf16 S131072 D128 / read"], (0.8, True))
        with open(os.path.join(self.out, "report.md"), encoding="utf-8") as file:
            text = file.read()
        for wanted in ("2026-01-02", "a \\| b", "Something failed.", "| bad | the part bad | failed: ended with 1 |", "    why"):
            self.assertIn(wanted, text)
        with open(os.path.join(self.out, "report.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file), told)

    def test_what_is_asked_of_the_machine_counts_and_all_ends_within_four_minutes(self):
        clock, given = [100.0], []

        def probe(_):
            clock[0] += 42
            return GPU, ""

        def smi(_):
            clock[0] += 3
            return ""

        def parts_run(_, out, identity, seconds, fresh, **options):
            given.append((seconds, options["jobs"]))
            return runner.NOT_ALL, {}

        with contextlib.ExitStack() as stack:
            for name, value in (("Build", lambda _: Built), ("gpu_of", probe), ("ask_smi", smi), ("find_library", lambda *_: None)):
                stack.enter_context(mock.patch.object(run, name, value))
            stack.enter_context(mock.patch.object(run.time, "monotonic", lambda: clock[0]))
            stack.enter_context(mock.patch.object(schedule, "run", parts_run))
            stack.enter_context(mock.patch.object(report, "write"))
            stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
            self.assertEqual(run.main(["--out", self.out, "--jobs", "3"]), runner.NOT_ALL)
        self.assertEqual(given, [(run.ALL_SECONDS - 42 - 3 - 3, 3)])
        self.assertLessEqual(run.ALL_SECONDS + runner.KILL_SECONDS + run.SMI_SECONDS, 4 * 60)

    def main(self, all_parts, gpu=GPU, clocks=lambda: ""):
        """Its exit code and what it has printed."""
        said = io.StringIO()
        with contextlib.ExitStack() as stack:
            for name, value in (("Build", lambda _: Built), ("gpu_of", lambda _: (gpu, "")), ("find_library", lambda *_: None),
                                ("all_parts", lambda _: all_parts), ("ask_smi", lambda fields: clocks() if fields == run.CLOCKS else "GPU-1")):
                stack.enter_context(mock.patch.object(run, name, value))
            stack.enter_context(contextlib.redirect_stdout(said))
            stack.enter_context(contextlib.redirect_stderr(said))
            return run.guarded(["--out", self.out]), said.getvalue()

    def reported(self):
        return json.loads(self.left_in("report.json"))

    def test_there_is_a_report_whenever_a_part_has_ended(self):
        keep = "import shutil; shutil.copy('report.json', 'then.json'); shutil.copy('report.md', 'then.md')"
        times = iter(("before all", "after all"))
        code, said = self.main([fake("one", "raise SystemExit(2)"), fake("two", keep)], clocks=lambda: next(times))
        self.assertEqual(code, runner.FAILED, said)
        then, at_last = json.loads(self.left_in("then.json")), self.reported()
        self.assertEqual([facts["status"] for facts in then["parts"].values()], ["failed", "not run"])
        self.assertEqual(then["verdict"], "Something failed, and not all parts have run: run it again for the others.")
        self.assertIn("| one | the part one | failed: ended with 2 |", self.left_in("then.md"))
        self.assertEqual([facts["status"] for facts in at_last["parts"].values()], ["failed", "passed"])
        self.assertEqual((then["machine"]["clocks before"], then["machine"].get("clocks after")), ("before all", None))
        self.assertEqual(at_last["machine"]["clocks after"], "after all")

    def test_a_run_that_breaks_or_is_stopped_leaves_what_is_known(self):
        keep = schedule.State.keep
        for error, wanted, verdict in ((ValueError("of ours"), runner.BROKEN, "The runner itself is at fault."),
                                       (KeyboardInterrupt(), runner.STOPPED, "It was stopped: run it again for the others.")):
            def kept(state, name, facts, error=error):
                if name == "two":
                    raise error
                keep(state, name, facts)

            with mock.patch.object(schedule.State, "keep", kept):
                code, said = self.main([fake("one", ""), fake("two", "", stage="2"), fake("three", "", stage="3")])
            self.assertEqual(code, wanted, said)
            told = self.reported()
            self.assertEqual((told["verdict"], told["parts"]["one"]["status"]), (verdict, "passed"))
            self.assertEqual(told["parts"]["three"]["status"], "not run")

    def test_a_report_that_is_at_fault_stops_no_part(self):
        with mock.patch.object(report, "write", side_effect=ValueError("no report")):
            code, said = self.main([fake("one", ""), fake("two", "open('ran', 'w')")])
        self.assertEqual(code, runner.BROKEN)
        self.assertIn("no report", said)
        self.left_in("ran")

    def test_another_machine_with_such_a_gpu_goes_on(self):
        counting = [fake("counts", "open('count', 'a').write('x')")]
        for gpu, wanted in ((GPU, 1), ({**GPU, "description": "that GPU in another slot, driver 2"}, 1), ({**GPU, "device": "another GPU"}, 2),
                            ({**GPU, "device": "another GPU", "capability": 100}, 3)):
            self.assertEqual(self.main(counting, gpu)[0], runner.PASSED)
            self.assertEqual(len(self.left_in("count")), wanted, gpu)
            self.assertEqual(self.reported()["parts"]["counts"]["card"], "GPU-1")

    def test_the_first_failures_are_shown(self):
        failures = [{"name": "case/1", "classname": "Suite", "failures": [{"failure": "file.cc:3\nwrong"}]}]
        _, facts = self.go([fake("cases", "print('the end')", "gtest", write={"testsuites": [{"testsuite": failures}]})])
        report.write(self.out, "", {}, "", facts, {"cases": ""})
        self.assertIn("\nSuite.case/1 of cases:\n\n    file.cc:3\n    wrong\n\nWhat cases said:\n\n    the end\n", self.left_in("report.md"))


if __name__ == "__main__":
    unittest.main()
