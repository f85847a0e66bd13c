"""Tests how tools/test counts cases in the files that GoogleTest and Bazel write."""

import io
import json
import os
import shutil
import subprocess
import tempfile
import unittest

from tools.testing import run_tests

GTEST_XML = """<?xml version="1.0" encoding="UTF-8"?>
<testsuites tests="4" failures="1" disabled="1" errors="0" name="AllTests">
  <testsuite name="A" tests="4">
    <testcase name="Good" status="run" result="completed" classname="A" />
    <testcase name="Bad" status="run" result="completed" classname="A">
      <failure message="a.cc:3&#x0A;1 is not 2" type=""></failure>
    </testcase>
    <testcase name="NoDevice" status="run" result="skipped" classname="A">
      <skipped message="worker/kernel_test.cc:12&#x0A;no AVX-512 here&#x0A;"></skipped>
    </testcase>
    <testcase name="DISABLED_Later" status="notrun" result="suppressed" classname="A" />
  </testsuite>
</testsuites>
"""


def event(kind, label, **fields):
    return json.dumps({"id": {kind: {"label": label}}, kind: fields})


class RunTestsTest(unittest.TestCase):
    def write(self, text):
        handle, path = tempfile.mkstemp(dir=os.environ.get("TEST_TMPDIR"))
        with os.fdopen(handle, "w") as file:
            file.write(text)
        return path

    def outcomes(self, status, *texts):
        paths = [self.write(text) for text in texts]
        return [case.outcome for case in run_tests.cases_of_target("asan", "//a:t", status, paths)]

    def test_each_case_of_a_google_test_counts(self):
        self.assertEqual(
            run_tests.parse_test_xml(GTEST_XML),
            [
                ("A.Good", "passed", ""),
                ("A.Bad", "failed", "a.cc:3\n1 is not 2"),
                ("A.NoDevice", "skipped", "no AVX-512 here"),
                ("A.DISABLED_Later", "skipped", "disabled in its source"),
            ],
        )

    def test_a_worker_without_cuda_ends_with_one_line_that_says_so(self):
        line = "2026-01-02T03:04:05Z E here cannot start: FAILED_PRECONDITION: this program was built without CUDA"
        self.assertEqual(run_tests.without_cuda(1, "WARNING: a build option has changed\n" + line), "")
        for code, said in ((0, line), (37, line), (1, line + "\nterminate called"), (1, "this machine has no NVIDIA driver"), (1, ""), (None, "it did not end")):
            self.assertNotEqual(run_tests.without_cuda(code, said), "", (code, said))

    def test_the_cases_of_all_shards_count(self):
        self.assertEqual(len(self.outcomes("FAILED", GTEST_XML, GTEST_XML)), 8)

    def test_a_target_that_did_not_run_is_a_failure(self):
        self.assertEqual(self.outcomes(None), ["failed"])
        self.assertEqual(self.outcomes("NO_STATUS"), ["failed"])

    def test_a_target_that_died_is_a_failure_beside_its_passed_cases(self):
        one = '<testsuites><testsuite><testcase name="x"/></testsuite></testsuites>'
        self.assertEqual(self.outcomes("TIMEOUT", one), ["passed", "failed"])

    def test_a_target_without_a_case_is_a_failure(self):
        self.assertEqual(self.outcomes("PASSED", "<testsuites/>"), ["failed"])
        self.assertEqual(self.outcomes("PASSED", "no XML"), ["failed"])

    def test_build_events_give_status_and_files(self):
        output = [{"name": "test.log", "uri": "file:///l"}, {"name": "test.xml", "uri": "file:///a%20b"}]
        status, xmls = run_tests.read_events(
            [
                event("testResult", "//a:t", testActionOutput=output),
                event("testSummary", "//a:t", overallStatus="PASSED"),
                json.dumps({"id": {"progress": {}}}),
            ]
        )
        self.assertEqual(status, {"//a:t": "PASSED"})
        self.assertEqual(dict(xmls), {"//a:t": ["/a b"]})

    def test_the_last_line_counts_and_the_exit_code_follows_it(self):
        def run(*outcomes):
            out = io.StringIO()
            cases = [run_tests.Case("normal", "//a:t", "c", outcome, "why") for outcome in outcomes]
            return run_tests.report(cases, out), out.getvalue().splitlines()

        self.assertEqual(run("passed", "passed"), (0, ["2 passed, 0 failed"]))
        code, lines = run("passed", "failed", "skipped", "skipped")
        self.assertEqual((code, lines[-1]), (1, "1 passed, 1 failed"))
        self.assertIn("SKIPPED normal //a:t c and 1 more: why", lines)
        self.assertIn("FAILED normal //a:t c: why", lines)
        self.assertEqual(run(), (1, ["0 passed, 0 failed"]))
        self.assertEqual(run("skipped")[0], 1)


class HelpTest(unittest.TestCase):
    def test_help_needs_no_setup(self):
        with tempfile.TemporaryDirectory() as clone:
            shutil.copytree("tools", os.path.join(clone, "tools"))
            for tool in ("tools/test", "tools/bench"):
                done = subprocess.run(
                    [os.path.join(clone, tool), "--help"], capture_output=True, text=True, timeout=100
                )
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn(f"usage: {tool}", done.stdout)


if __name__ == "__main__":
    unittest.main()
