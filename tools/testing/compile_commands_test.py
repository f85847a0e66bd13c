"""tools/compile_commands makes entries of an aquery's JSON, with paths that exist outside Bazel's execution root."""

import contextlib
import io
import json
import os
import stat
import tempfile
import unittest
from unittest import mock

from tools.testing import compile_commands

# Output of `bazel aquery --output=jsonproto`, with fewer flags; ids and depsets are unchanged.
RECORDED = r"""
{
  "artifacts": [{"id": 1, "pathFragmentId": 1}, {"id": 2, "pathFragmentId": 5}],
  "actions": [{
    "targetId": 1,
    "actionKey": "5dc4b2",
    "mnemonic": "CppCompile",
    "configurationId": 1,
    "arguments": ["/usr/bin/gcc", "-U_FORTIFY_SOURCE", "-fno-canonical-system-headers", "-std=c++17",
      "-MD", "-MF", "bazel-out/k8-opt/bin/base/_objs/log/log.pic.d",
      "-frandom-seed=bazel-out/k8-opt/bin/base/_objs/log/log.pic.o", "-fPIC",
      "-iquote", ".", "-iquote", "bazel-out/k8-opt/bin", "-iquote", "external/system",
      "-Ibazel-out/k8-opt/bin/proto/_virtual_includes/v1", "-isystem", "external/system/include",
      "-isystem/usr/include/x", "-DNAME=\"a b\"",
      "-c", "base/log.cc", "-o", "bazel-out/k8-opt/bin/base/_objs/log/log.pic.o"],
    "environmentVariables": [{"key": "PATH", "value": "/bin:/usr/bin"}],
    "inputDepSetIds": [1],
    "outputIds": [2],
    "primaryOutputId": 2
  }, {
    "mnemonic": "CppCompile",
    "arguments": ["/usr/bin/gcc", "-c", "bazel-out/k8-opt/bin/proto/annulus/v1/types.pb.cc",
      "-o", "bazel-out/k8-opt/bin/proto/_objs/v1/types.pb.pic.o"]
  }, {
    "mnemonic": "CppCompile",
    "arguments": ["/usr/bin/gcc", "-DHOST", "-c", "base/escape_for_terminal.cc",
      "-o", "bazel-out/host/bin/base/_objs/printable/printable.pic.o"]
  }, {
    "mnemonic": "CppCompile",
    "arguments": ["/usr/bin/gcc", "-DFIRST", "-c", "base/escape_for_terminal.cc",
      "-o", "bazel-out/k8-opt/bin/base/_objs/printable/printable.pic.o"]
  }, {
    "mnemonic": "CppCompile",
    "arguments": ["/usr/bin/gcc", "-DSECOND", "-c", "base/escape_for_terminal.cc",
      "-o", "bazel-out/k8-opt/bin/base/_objs/other/printable.pic.o"]
  }, {
    "mnemonic": "CppLink",
    "arguments": ["/usr/bin/gcc", "-c", "base/mutex.cc"]
  }, {
    "mnemonic": "CppCompile",
    "arguments": ["/usr/bin/gcc", "--version"]
  }],
  "targets": [{"id": 1, "label": "//base:log", "ruleClassId": 1}]
}
"""
ROOTS = compile_commands.Roots("/work", "/base/execroot/annulus", "/base")
OUT = "/base/execroot/annulus/bazel-out/k8-opt/bin/"


def made():
    return {each["file"]: each for each in compile_commands.entries(json.loads(RECORDED), ROOTS)}


class CompileCommandsTest(unittest.TestCase):
    def test_sources_stay_in_the_workspace_and_the_rest_becomes_absolute(self):
        self.assertEqual(
            made()["base/log.cc"],
            {
                "directory": "/work",
                "file": "base/log.cc",
                "output": OUT + "base/_objs/log/log.pic.o",
                "arguments": [
                    "/usr/bin/gcc", "-U_FORTIFY_SOURCE", "-std=c++17",
                    "-MD", "-MF", OUT + "base/_objs/log/log.pic.d",
                    "-frandom-seed=bazel-out/k8-opt/bin/base/_objs/log/log.pic.o", "-fPIC",
                    "-iquote", ".", "-iquote", OUT[:-1], "-iquote", "/base/external/system",
                    "-I" + OUT + "proto/_virtual_includes/v1", "-isystem", "/base/external/system/include",
                    "-isystem/usr/include/x", '-DNAME="a b"',
                    "-c", "base/log.cc", "-o", OUT + "base/_objs/log/log.pic.o",
                ],
            },
        )

    def test_a_generated_source_is_absolute(self):
        self.assertIn(OUT + "proto/annulus/v1/types.pb.cc", made())

    def test_one_entry_for_a_source_and_that_of_the_target_platform(self):
        self.assertIn("-DFIRST", made()["base/escape_for_terminal.cc"]["arguments"])

    def test_what_compiles_nothing_has_no_entry(self):
        self.assertEqual(
            list(made()),
            ["base/escape_for_terminal.cc", "base/log.cc", OUT + "proto/annulus/v1/types.pb.cc"],
        )

    def test_folders_that_only_begin_alike_are_sources(self):
        self.assertEqual(ROOTS.argument("-Iexternals/x"), "-Iexternals/x")
        self.assertEqual(ROOTS.resolve("bazel-output/x"), "bazel-output/x")
        self.assertEqual(ROOTS.resolve("external"), "/base/external")


# Stands in for Bazel: logs how it is called and answers `info` and `aquery`.
FAKE_BAZEL = """#!/bin/bash
echo "$*" >> "$LOG"
case "$1" in
  info) printf 'workspace: %s\\nexecution_root: /base/execroot/annulus\\noutput_base: /base\\n' "$PLACE" ;;
  aquery) cat "$PLACE/graph"; exit "${ENDS_WITH:-0}" ;;
esac
"""


class ProgramTest(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.place = place.name
        self.log = os.path.join(self.place, "log")
        self.database = os.path.join(self.place, "compile_commands.json")
        script = os.path.join(self.place, "bazel")
        for path, text in ((script, FAKE_BAZEL), (os.path.join(self.place, "graph"), RECORDED)):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        os.chmod(script, os.stat(script).st_mode | stat.S_IXUSR)
        self.environment = {"BAZEL": script, "BAZEL_FLAGS": "--jobs=1", "PLACE": self.place, "LOG": self.log}

    def run_main(self, *arguments, **environment):
        out = io.StringIO()
        with mock.patch.dict(os.environ, {**self.environment, **environment}):
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
                return compile_commands.main(list(arguments)), out.getvalue()

    def test_asks_bazel_and_writes_the_database(self):
        self.assertEqual(self.run_main(), (0, "compile_commands.json: 3 sources\n"))
        with open(self.log, encoding="utf-8") as file:
            self.assertEqual(
                file.read().splitlines(),
                [
                    "info --jobs=1 workspace execution_root output_base",
                    'aquery --jobs=1 --output=jsonproto mnemonic("CppCompile", deps(//...))',
                ],
            )
        with open(self.database, encoding="utf-8") as file:
            self.assertEqual(len(json.load(file)), 3)

    def test_a_failure_of_bazel_leaves_what_was_there(self):
        with open(self.database, "w", encoding="utf-8") as file:
            file.write("old")
        self.assertEqual(self.run_main("//base/...", ENDS_WITH="7"), (7, ""))
        with open(self.database, encoding="utf-8") as file:
            self.assertEqual(file.read(), "old")

    def test_unknown_arguments_are_refused(self):
        self.assertEqual(self.run_main("--help")[0], 2)
        self.assertEqual(self.run_main("//a", "//b")[0], 2)


if __name__ == "__main__":
    unittest.main()
