"""The runner of GPU tests, with parts that need no GPU."""

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

from tests.end_to_end.waiting import wait_for
from tests.gpu import parts, peers, report, run, runner
from tests.gpu.runner import Part

GTEST = {"testsuites": [{"testsuite": [
    {"name": "a", "result": "COMPLETED"},
    {"name": "b", "result": "SKIPPED"},
]}]}
# As GoogleTest 1.12 says it, whose JSON has no reasons.
SKIPS = """print("[ RUN      ] A.a\\nfile.cc:3: Skipped\\n\\n[  SKIPPED ] A.a (0 ms)")
print("[ RUN      ] A.b\\nfile.cc:4: Skipped\\nno such thing\\nhere\\n[  SKIPPED ] A.b (0 ms)")
print("[  SKIPPED ] 2 tests, listed below:")"""


def fake(name, code, result="", seconds=20, write=None):
    """A part that writes its result file and runs a line of Python."""
    save = f"open({name + '.json'!r}, 'w').write({json.dumps(write)!r})\n" if write is not None else ""
    return Part(name, f"the part {name}", seconds, [sys.executable, "-c", save + code], result)


class Place:
    programs, nccl, cudnn, hopper = "/programs", "/lib/libnccl.so.2", "/lib/libcudnn.so.9", True

    @staticmethod
    def test(name):
        assert name in run.TESTS, name
        return "/programs/" + name


class RunnerTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        self.out = os.path.join(folder.name, "out")
        self.said = []

    def go(self, all_parts, seconds=60, fresh=False, identity="one", stamp=None):
        return runner.run(all_parts, self.out, identity, seconds, fresh, self.said.append, stamp)

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

    def test_what_has_finished_is_not_run_again_unless_it_is_to_be(self):
        counting = [fake("counts", "open('count', 'a').write('x')")]
        for identity, fresh, wanted in (("one", False, 1), ("one", False, 1), ("two", False, 2), ("two", True, 3)):
            self.assertEqual(self.go(counting, fresh=fresh, identity=identity)[0], runner.PASSED)
            self.assertEqual(os.path.getsize(os.path.join(self.out, "count")), wanted, (identity, fresh))

    def test_a_part_is_killed_at_its_limit_with_what_it_started_and_run_again(self):
        line = "import subprocess; subprocess.Popen(['sleep', '100']); open('began', 'a').write('x'); print('on', flush=True); "
        hanging = fake("hangs", line + "import threading; threading.Event().wait(100)", seconds=5)
        began = time.monotonic()
        code, facts = self.go([hanging, fake("good", "")])
        self.assertLess(time.monotonic() - began, 60)
        self.assertEqual((code, facts["hangs"]["status"], facts["good"]["status"]), (runner.FAILED, "timed out", "passed"))
        self.assertEqual(facts["hangs"]["tail"], ["on"])
        self.go([hanging])
        self.assertEqual(os.path.getsize(os.path.join(self.out, "began")), 2)

    def test_nothing_outlives_a_part_whatever_session_it_is_in(self):
        # As programs of the end-to-end tests are: a session of its own, and here a parent that is gone too.
        deep = "import os, subprocess; child = subprocess.Popen(['sleep', '1000'], start_new_session=True); " \
               "open('pids', 'a').write(f'{child.pid} {os.getpid()} '); print('on', flush=True); "
        between = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {deep + 'import threading; threading.Event().wait(1000)'!r}], " \
                  "start_new_session=True, stdout=subprocess.PIPE).stdout.readline(); "
        for name, end, status in (("hangs", "import threading; threading.Event().wait(1000)", "timed out"), ("ends", "", "passed")):
            _, facts = self.go([fake(name, between + end, seconds=10 if end else 60)])
            self.assertEqual(facts[name]["status"], status, facts[name])
        with open(os.path.join(self.out, "pids"), encoding="utf-8") as file:
            pids = [int(word) for word in file.read().split()]
        self.assertEqual(len(pids), 4)
        for pid in pids:
            with self.assertRaises(ProcessLookupError):
                os.kill(pid, 0)

    def test_a_runner_that_is_stopped_stops_its_part(self):
        hanging = "import subprocess; subprocess.Popen(['sleep', '1000'], start_new_session=True); print('on', flush=True); " \
                  "import threading; threading.Event().wait(1000)"
        text = f"""import sys
from tests.gpu import run, runner
part = runner.Part("hangs", "", 100, [sys.executable, "-c", {hanging!r}])
run.main = lambda out: runner.run([part], out, "one", 100)
sys.exit(run.guarded({self.out!r}))
"""
        process = subprocess.Popen([sys.executable, "-c", text], env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
                                   stderr=subprocess.PIPE, text=True)
        log = os.path.join(self.out, "hangs.log")
        wait_for(lambda: os.path.exists(log) and os.path.getsize(log), 60, "a log")
        known = runner.parents()
        started = {child for child, parent in known.items() if parent == process.pid}
        started |= {child for child, parent in known.items() if parent in started}
        self.assertEqual(len(started), 2)
        process.terminate()
        _, said = process.communicate(timeout=60)
        self.assertEqual((process.returncode, said), (runner.STOPPED, "tests/gpu/run.sh: stopped; what has finished is kept\n"))
        self.assertFalse(started & set(runner.parents()))

    def test_a_part_that_fails_is_seen_to_whatever_the_parent_ignored(self):
        text = f"""import sys
from tests.gpu import run, runner
part = runner.Part("bad", "", 100, [sys.executable, "-c", "raise SystemExit(3)"])
run.main = lambda out: runner.run([part], out, "one", 100)[0]
sys.exit(run.guarded({self.out!r}))
"""
        done = subprocess.run([sys.executable, "-c", text], env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
                              stdout=subprocess.PIPE, text=True, timeout=60,
                              preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        self.assertEqual(done.returncode, runner.FAILED, done.stdout)

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
        slow = fake("slow", "import threading; threading.Event().wait(100)", seconds=50)
        code, facts = self.go([slow], seconds=6)
        self.assertEqual((code, facts["slow"]["status"]), (runner.NOT_ALL, "not run"))

    def test_a_broken_state_begins_anew(self):
        self.go([fake("one", "")])
        with open(os.path.join(self.out, "state.json"), "w", encoding="utf-8") as file:
            file.write("{")
        self.assertEqual(self.go([fake("one", "")])[0], runner.PASSED)
        self.assertNotIn("before", self.said[-1])

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

    def test_what_is_asked_of_the_machine_counts_and_all_ends_within_nine_minutes(self):
        clock, given = [100.0], []

        class Built(Place):
            commit, digest, bundled_nccl = "abc", "def", None

        def probe(_):
            clock[0] += 42
            return {"capability": 90, "description": "a GPU", "multiprocessors": 1, "memory_bytes": 1}, ""

        def smi(_):
            clock[0] += 3
            return ""

        def parts_run(_, out, identity, seconds, fresh, stamp):
            given.append(seconds)
            return runner.NOT_ALL, {}

        with contextlib.ExitStack() as stack:
            for name, value in (("Build", lambda _: Built), ("gpu_of", probe), ("ask_smi", smi), ("find_library", lambda *_: None)):
                stack.enter_context(mock.patch.object(run, name, value))
            stack.enter_context(mock.patch.object(run.time, "monotonic", lambda: clock[0]))
            stack.enter_context(mock.patch.object(runner, "run", parts_run))
            stack.enter_context(mock.patch.object(report, "write"))
            stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
            self.assertEqual(run.main(["--out", self.out]), runner.NOT_ALL)
        self.assertEqual(given, [run.ALL_SECONDS - 42 - 3 - 3])
        self.assertLessEqual(run.ALL_SECONDS + runner.KILL_SECONDS + run.SMI_SECONDS, 9 * 60)

    def test_the_report_tells_it_all(self):
        ours = {"name": "forward bf16 S8192 D128 full", "value": 300.0, "unit": "TFLOP/s"}
        causal = {"name": "forward bf16 S8192 D128 causal", "value": 270.0, "unit": "TFLOP/s"}
        hopper = {"name": "hopper forward bf16 S8192 D128 full", "value": 480.0, "unit": "TFLOP/s"}
        narrow = [{"name": f"{kernel}forward bf16 S16384 D64 full", "value": 200.0, "unit": "TFLOP/s"} for kernel in ("", "hopper ")]
        their_narrow = {"name": "cudnn forward bf16 S16384 D64 full", "value": 400.0, "unit": "TFLOP/s"}
        through = {"name": "with-cudnn forward bf16 S8192 D128 full", "value": 540.0, "unit": "TFLOP/s"}
        theirs = {"name": "cudnn forward bf16 S8192 D128 full", "value": 600.0, "unit": "TFLOP/s"}
        backward = {"name": "backward bf16 S8192 D128 full", "value": 180.0, "unit": "TFLOP/s"}
        cudnn_backward = {"name": "cudnn backward bf16 S8192 D128 full", "value": 450.0, "unit": "TFLOP/s"}
        gemm = {"name": "gemm bf16 8192", "value": 750.0, "unit": "TFLOP/s"}
        decode = {"name": "decode bf16 S131072 D128", "value": 2400.0, "unit": "GB/s"}
        read = {"name": "read", "value": 3000.0, "unit": "GB/s"}
        _, facts = self.go([
            fake("bench", "", "figures", write=[ours, causal, hopper, through, backward, decode, *narrow]),
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
        self.assertEqual(ratios["forward bf16 S8192 D128 full / GEMM"], (0.4, None))
        self.assertEqual(ratios["forward bf16 S8192 D128 causal / full"], (0.9, True))
        self.assertEqual(ratios["decode bf16 S131072 D128 / read"], (0.8, True))
        with open(os.path.join(self.out, "report.md"), encoding="utf-8") as file:
            text = file.read()
        for wanted in ("2026-01-02", "a \\| b", "Something failed.", "| bad | the part bad | failed: ended with 1 |", "    why"):
            self.assertIn(wanted, text)
        with open(os.path.join(self.out, "report.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file), told)

    def test_every_part_has_a_name_of_its_own_and_all_fit_into_nine_minutes_with_a_resumption(self):
        everything = parts.all_parts(Place)
        self.assertEqual(len({part.name for part in everything}), len(everything))
        self.assertTrue(all(part.seconds <= 150 for part in everything))
        self.assertEqual(run.chosen(everything, ["bench"])[0].name, "bench")
        with self.assertRaises(SystemExit) as ended, contextlib.redirect_stderr(io.StringIO()):
            run.chosen(everything, ["none"])
        self.assertEqual(ended.exception.code, runner.USAGE)

    def test_the_portable_kernel_comes_before_the_one_for_hopper(self):
        names = [part.name for part in parts.all_parts(Place)]
        portable = [name for name in names if name.startswith(("device", "kernel_", "virtual_ranks", "nccl_ranks", "jobs_"))]
        hopper = [name for name in names if name.startswith("hopper_")]
        self.assertEqual(names[:len(portable) + len(hopper)], portable + hopper)
        self.assertEqual(names[names.index("hopper_check") - 1], "jobs_2")
        for part in parts.all_parts(Place):
            if part.name in portable and "kernel" in part.name:
                self.assertEqual(part.command[-1], "--gtest_filter=-*/hopper:*/cudnn")
                self.assertIn("hopper_" + part.name, hopper)

    def test_cudnn_is_handed_on_where_it_is_there(self):
        everything = {part.name: part for part in parts.all_parts(Place)}
        for name in ("bench_cudnn", *(f"cudnn_kernel_{suite}" for suite in parts.CUDNN_SUITES)):
            self.assertEqual(everything[name].environment, {"ANNULUS_CUDNN_LIBRARY": Place.cudnn})
        self.assertIn(Place.cudnn, everything["cudnn_jobs"].command)

        class Without(Place):
            cudnn = None

        done = subprocess.run(run.chosen(parts.all_parts(Without), ["cudnn_jobs"])[0].command, capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout), (77, "no NCCL or no cuDNN here\n"))

    def test_another_gpu_skips_what_is_for_hopper(self):
        class Other(Place):
            hopper = False

        with mock.patch.object(parts, "find_sanitizer", return_value="/bin/compute-sanitizer"):
            skipped = [part for part in parts.all_parts(Other) if "hopper" in part.name]
        self.assertEqual(len(skipped), len(parts.KERNEL_SUITES) + 4 + 1 + 2)
        for part in skipped:
            done = subprocess.run(part.command, capture_output=True, text=True, timeout=60)
            self.assertEqual((done.returncode, done.stdout), (77, "the kernel for Hopper needs a GPU of sm_90\n"))

    def test_each_kernel_is_measured_by_a_process_of_its_own(self):
        commands = {part.name: part.command for part in parts.all_parts(Place) if part.name.startswith("bench")}
        self.assertEqual(list(commands), ["bench", "bench_hopper", "bench_cudnn"])
        for name, kernel in zip(commands, ("portable", "hopper", "cudnn")):
            self.assertEqual(commands[name], ["/bin/sh", "-c", f'exec "$0" {kernel} > {name}.json', "/programs/gpu_bench"])

    def test_a_report_names_versions(self):
        library = os.path.join(self.out, "no_library.so")
        self.assertEqual(run.library_text(None, "ncclGetVersion"), "none")
        self.assertEqual(run.library_text(library, "ncclGetVersion"), f"of unknown version, {library}")
        nccl = os.path.abspath("tests/comm/libnccl_fake.so")
        self.assertEqual(run.library_text(nccl, "ncclGetVersion"), f"2.28.9, {nccl}")
        cudnn = os.path.abspath("tests/kernel/cuda/libcudnn_old.so")
        self.assertEqual(run.library_text(cudnn, "cudnnGetVersion"), f"8.9.7, {cudnn}")

    def test_a_peer_is_named_with_its_versions(self):
        versions = {"__version__": "2.9.1", "version.cuda": "13.0", "backends.cudnn.version": lambda: 91900}
        found = peers.signed(mock.Mock(**versions), [peers.entry("read", 2e9, 1.0, "GB/s")])
        self.assertEqual([(figure["value"], figure["compared_to"]) for figure in found], [(2.0, "by torch 2.9.1, CUDA 13.0, cuDNN 91900")])

    def test_backward_shapes_are_those_of_the_peer(self):
        with open("tests/gpu/gpu_bench.cc", encoding="utf-8") as file:
            text = file.read()
        for length, dim, _ in peers.BACKWARD_SHAPES:
            self.assertIn(f"Forward({length}, {dim}, {peers.HEADS}, causal);\n  spec.operation = Operation::kGradients", text)
            self.assertIn(f"NameOf({length}, {dim}, causal, /*forward=*/false)", text)

    def test_what_a_checker_runs_is_among_the_cases_of_its_suite(self):
        for suite, cases in parts.CHECKED_CASES.items():
            self.assertIn(suite, parts.KERNEL_SUITES)
            with open(f"tests/kernel/{suite}_test.cc", encoding="utf-8") as file:
                names = re.findall(r"^TEST_P\(\w+, (\w+)\)", file.read(), re.MULTILINE)
            for case in cases:
                self.assertTrue([name for name in names if case in name], (suite, case))

    def test_a_checker_watches_our_kernels_alone(self):
        with mock.patch.object(parts, "find_sanitizer", return_value="/bin/compute-sanitizer"):
            checked = [part for part in parts.all_parts(Place) if part.name.startswith("sanitizer_")]
        self.assertEqual(len(checked), 2 * (len(parts.CHECKED_CASES) + 1))
        for part in checked:
            # One kernel each: what is said of the one is not the other's.
            wanted = r"^--gtest_filter=([^-:]+\*/hopper(:|$))+$" if "hopper" in part.name else r"^--gtest_filter=[^-]+-\*/hopper:\*/cudnn$"
            self.assertRegex(part.command[-1], wanted)
        self.assertEqual(len([part for part in checked if "hopper" in part.name]), 2)


if __name__ == "__main__":
    unittest.main()
