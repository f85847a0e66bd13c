"""Runs the unittest cases of one file and writes them as JUnit XML, which tools/test counts.

    python -m tools.testing.unittest_xml tests/end_to_end/attend_test.py [unittest arguments]

The XML goes to $XML_OUTPUT_FILE, as `bazel test` sets it; without it only the exit code tells.
"""

import os
import sys
import time
import unittest
from xml.etree import ElementTree


class _XmlResult(unittest.TextTestResult):
    """Collects one <testcase> for each case; a failed subtest fails its case."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.suite = ElementTree.Element("testsuite", name=os.path.basename(sys.argv[0]))
        self._began = 0.0
        self._outcome = []

    def startTest(self, test):
        super().startTest(test)
        self._began = time.monotonic()
        self._outcome = []

    def stopTest(self, test):
        super().stopTest(test)
        self._record(test, self._outcome)

    def _record(self, test, outcome):
        case = ElementTree.SubElement(
            self.suite,
            "testcase",
            classname=type(test).__name__,
            name=test.id().rsplit(".", 1)[-1],
            time=f"{time.monotonic() - self._began:.3f}",
        )
        for kind, message in outcome:
            ElementTree.SubElement(case, kind, message=message)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._outcome.append(("failure", str(err[1])))

    def addError(self, test, err):
        super().addError(test, err)
        if isinstance(test, unittest.TestCase):
            self._outcome.append(("error", repr(err[1])))
        else:  # setUpClass or the module itself: no case has started.
            self._began = time.monotonic()
            self._record(test, [("error", repr(err[1]))])

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        if isinstance(test, unittest.TestCase):
            self._outcome.append(("skipped", reason))
        else:
            self._began = time.monotonic()
            self._record(test, [("skipped", reason)])

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._outcome.append(("failure", f"{subtest}: {err[1]}"))

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self._outcome.append(("failure", "unexpected success"))


def main():
    path, arguments = sys.argv[1], sys.argv[2:]
    module = os.path.splitext(path)[0].replace("/", ".")
    runner = unittest.TextTestRunner(resultclass=_XmlResult, verbosity=2)
    program = unittest.main(
        module=module, argv=[path] + arguments, testRunner=runner, exit=False
    )
    result = program.result
    if os.environ.get("XML_OUTPUT_FILE"):
        suites = ElementTree.Element("testsuites")
        suites.append(result.suite)
        ElementTree.ElementTree(suites).write(os.environ["XML_OUTPUT_FILE"], encoding="utf-8")
    if result.testsRun == 0 and not result.skipped:
        print("no test ran", file=sys.stderr)
        return 1
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
