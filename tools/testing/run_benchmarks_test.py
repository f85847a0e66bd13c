"""Tests the arguments of tools/bench, and its processing of the benchmarks' output."""

import contextlib
import io
import json
import os
import stat
import tempfile
import unittest
from unittest import mock

from tools.testing import run_benchmarks

ENTRY = {
    "name": "goodput", "value": 2.5, "unit": "GB/s", "compared_to": "TCP", "ratio": 0.8, "better": "higher",
    "bar": 0.7, "met": True, "ceiling": 3.1, "repeats": 5, "spread": 0.1,
}
MISSED = dict(ENTRY, name="slow", ratio=0.6, met=False)
BARE = dict(ENTRY, ratio=None, bar=None, met=None, ceiling=None)


class EntriesTest(unittest.TestCase):
    def test_an_entry_has_eleven_fields(self):
        self.assertEqual(
            set(run_benchmarks.FIELDS),
            {"name", "value", "unit", "compared_to", "ratio", "better", "bar", "met", "ceiling", "repeats", "spread"},
        )
        self.assertEqual(run_benchmarks.check_entries(json.dumps([ENTRY, BARE])), [ENTRY, BARE])

    def refused(self, entries, why):
        with self.assertRaisesRegex(ValueError, why):
            run_benchmarks.check_entries(json.dumps(entries))

    def test_fields_that_lack_or_are_too_many_are_refused(self):
        for field in ENTRY:
            self.refused([{key: ENTRY[key] for key in ENTRY if key != field}], f"fields differ: .*{field}")
        self.refused([ENTRY, dict(ENTRY, why="so")], "fields differ: .*why")
        for whole in ([], {}, ENTRY, "entries"):
            self.refused(whole, "no JSON list of entries")

    def test_wrong_types_are_refused(self):
        nullable = {"ratio", "bar", "met", "ceiling"}
        for field in ENTRY:
            wrong = [[], {}] + ([] if field in nullable else [None])
            wrong.append(5 if isinstance(ENTRY[field], str) else "5")
            for value in wrong:
                self.refused([dict(ENTRY, **{field: value})], f": {field} is ")
        self.refused([dict(ENTRY, met=1)], "met is 1")
        self.refused([dict(ENTRY, value=True)], "value is True")
        self.refused([dict(ENTRY, repeats=1.5)], "repeats is 1.5")
        self.refused([dict(ENTRY, better="more")], "better is 'more'")


class FakeBench:
    """Benchmarks that are scripts: they print the entries that they were made of."""

    def __init__(self, folder, scripts):
        self.folder = folder
        for name, text in scripts.items():
            path = os.path.join(folder, name)
            with open(path, "w", encoding="utf-8") as file:
                file.write("#!/bin/sh\n" + text)
            os.chmod(path, stat.S_IRWXU)
        self.names = sorted(scripts)

    def targets(self):
        return {name: f"//fake:{name}" for name in self.names}

    def build(self, labels):
        pass

    def binary(self, label):
        return os.path.join(self.folder, label.rsplit(":", 1)[1]), self.folder


class CommandTest(unittest.TestCase):
    def run_bench(self, arguments, **scripts):
        """Exit code, standard output and standard error."""
        out, err = io.StringIO(), io.StringIO()
        with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as folder:
            bench = FakeBench(folder, scripts)
            with mock.patch.object(run_benchmarks, "Bench", lambda: bench), contextlib.redirect_stdout(out), \
                    contextlib.redirect_stderr(err):
                try:
                    code = run_benchmarks.main(arguments)
                except SystemExit as end:
                    code = end.code
        return code, out.getvalue(), err.getvalue()

    @staticmethod
    def printing(*entries):
        return f"cat <<'END'\n{json.dumps(entries)}\nEND\n"

    def test_json_is_the_list_of_all_entries(self):
        code, out, _ = self.run_bench(["--json"], goodput=self.printing(ENTRY), slow=self.printing(MISSED, BARE))
        self.assertEqual((code, json.loads(out)), (0, [ENTRY, MISSED, BARE]))
        code, out, _ = self.run_bench(["slow", "--json"], goodput=self.printing(ENTRY), slow=self.printing(MISSED))
        self.assertEqual((code, json.loads(out)), (0, [MISSED]))

    def test_markdown_is_a_page_with_the_machine_and_the_commit(self):
        piped = dict(MISSED, name="a|b")
        with mock.patch.object(run_benchmarks, "commit", lambda: "abc1234"):
            code, out, _ = self.run_bench(["slow", "--markdown"], slow=self.printing(piped, BARE))
        self.assertEqual(code, 0)
        lines = out.splitlines()
        self.assertEqual(lines[0], f"# {run_benchmarks.cpu()}")
        self.assertRegex(lines[2], r"^`tools/bench slow --markdown` on \d{4}-\d\d-\d\d, commit abc1234, load \d+\.\d ")
        self.assertEqual(len({line.replace("\\|", "").count("|") for line in lines[4:]}), 1)
        self.assertIn("| a\\|b | 2.5 GB/s | 0.6 | >= 0.7 | 3.1 | 10% of 5 | **missed** | TCP |", lines)
        self.assertEqual(self.run_bench(["--markdown", "--json"], slow=self.printing(MISSED))[0], 2)

    def test_check_ends_with_1_where_a_bar_is_missed(self):
        good, slow = self.printing(ENTRY, BARE), self.printing(MISSED)
        self.assertEqual(self.run_bench(["--check"], goodput=good)[0], 0)
        self.assertEqual(self.run_bench(["--check"], goodput=good, slow=slow)[0], 1)
        code, out, _ = self.run_bench([], goodput=good, slow=slow)
        self.assertEqual(code, 0)
        self.assertIn("MISSED", out)

    def test_a_benchmark_that_fails_or_prints_what_is_no_entry_fails(self):
        for script in ("exit 3\n", "echo '[]'\n", "echo '[1]'\n", "echo nothing\n"):
            code, out, err = self.run_bench(["--json"], bad=script, goodput=self.printing(ENTRY))
            self.assertEqual((code, json.loads(out)), (1, [ENTRY]), script)
            self.assertIn("bad failed", err)

    def test_what_is_after_two_dashes_goes_to_the_one_that_is_named(self):
        script = f"test \"$*\" = '--tokens 262144' || exit 5\n{self.printing(ENTRY)}"
        self.assertEqual(self.run_bench(["million", "--", "--tokens", "262144"], million=script)[0], 0)
        self.assertEqual(self.run_bench(["million"], million=script)[0], 1)

    def test_arguments_for_none_or_for_several_are_refused(self):
        scripts = {name: self.printing(ENTRY) for name in ("million", "decode", "job")}
        for before in ([], ["million", "decode"], ["million", "--peers"], ["job"]):
            code, out, err = self.run_bench([*before, "--", "--tokens", "64"], **scripts)
            self.assertEqual((code, out), (2, ""), before)
            self.assertIn("arguments after -- are for one benchmark", err)
        code, _, err = self.run_bench(["million", "--tokens", "64"], **scripts)
        self.assertEqual(code, 2, err)

    def test_help_says_who_takes_which_arguments(self):
        code, out, _ = self.run_bench(["--help"])
        self.assertEqual(code, 0)
        self.assertIn("[-- ARGUMENT...]", out)
        self.assertIn("million [--tokens N]", " ".join(out.split()))


if __name__ == "__main__":
    unittest.main()
