"""The XML that Python tests leave behind says what happened to each case."""

import os
import subprocess
import sys
import tempfile
import unittest
from xml.etree import ElementTree

SAMPLE = """
import unittest

class Sample(unittest.TestCase):
    def test_good(self):
        pass
    def test_bad(self):
        self.assertEqual(1, 2)
    def test_raises(self):
        raise OSError("gone")
    @unittest.skip("no device")
    def test_skipped(self):
        pass
    def test_subtests(self):
        for i in range(3):
            with self.subTest(i=i):
                self.assertNotEqual(i, 1)

class Broken(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        raise RuntimeError("no server")
    def test_never_runs(self):
        pass
"""


class UnittestXmlTest(unittest.TestCase):
    def run_file(self, text):
        """Exit code, and what the XML says: {case name: kind of its first child, or passed}."""
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "sample_test.py"), "w") as file:
                file.write(text)
            xml = os.path.join(folder, "test.xml")
            done = subprocess.run(
                [sys.executable, "-m", "tools.testing.unittest_xml", "sample_test.py"],
                env={
                    "PYTHONPATH": f"{folder}:{os.getcwd()}",
                    "XML_OUTPUT_FILE": xml,
                    "PYTHONDONTWRITEBYTECODE": "1",
                },
                capture_output=True,
                timeout=60,
            )
            cases = {}
            for case in ElementTree.parse(xml).iter("testcase"):
                cases[case.get("name")] = case[0].tag if len(case) else "passed"
            return done.returncode, cases

    def test_every_case_has_its_outcome(self):
        code, cases = self.run_file(SAMPLE)
        broken = [name for name in cases if "Broken" in name]
        self.assertEqual(len(broken), 1, cases)
        self.assertEqual(cases.pop(broken[0]), "error")
        self.assertEqual(
            cases,
            {
                "test_good": "passed",
                "test_bad": "failure",
                "test_raises": "error",
                "test_skipped": "skipped",
                "test_subtests": "failure",
            },
        )
        self.assertEqual(code, 1)

    def test_a_file_without_cases_fails(self):
        code, cases = self.run_file("")
        self.assertEqual((code, cases), (1, {}))


if __name__ == "__main__":
    unittest.main()
