"""Each rule of the language finds what breaks it, and nothing in what keeps it."""

import unittest

from tools.testing import prose


class ProseTest(unittest.TestCase):
    def found(self, path, text):
        return [finding.split(": ", 1) for finding in prose.check(path, text)]

    def test_fragments(self):
        bad = "// What the cache holds.\nint a;\n\n// The rows. Of each\n// rank: whose they are.\nint b;  // Whose?\n"
        self.assertEqual([at for at, _ in self.found("base/a.h", bad)], ["base/a.h:1", "base/a.h:4"])
        self.assertEqual(self.found("base/a.h", "int a;  // Of the rank.\n")[0][0], "base/a.h:1")
        self.assertEqual(len(self.found("worker/a.cu", "  // The rank.\n  // Who waits, ends.\n")), 1)
        self.assertEqual(self.found("worker/a.cu", "  // The rank.\n  // Who waits, ends.\n")[0][0], "worker/a.cu:2")
        good = "// Offset of a row, whose rank is known. The caller owns it.\nint a;  // The rank of it.\n"
        self.assertEqual(self.found("base/a.h", good), [])
        self.assertEqual(self.found("tools/a.py", bad), [])

    def test_columns(self):
        line = "// " + "a" * 97
        self.assertEqual(self.found("proto/annulus/v1/a.proto", line + "\n"), [])
        self.assertEqual(
            self.found("proto/annulus/v1/a.proto", "\n" + line + "a\n"),
            [["proto/annulus/v1/a.proto:2", "101 columns, more than 100"]],
        )
        self.assertEqual(self.found("proto/google/a.proto", line + "a\n"), [])

    def test_pages(self):
        short, long = "One two three four five. ", " ".join(["word"] * 36) + ". "
        self.assertEqual(self.found("docs/a.md", short * 20), [])
        found = self.found("docs/a.md", "# Title\n\n" + short * 10 + "\n\n" + long)
        self.assertEqual([at for at, _ in found], ["docs/a.md:5"])
        self.assertIn("a sentence of 36 words", found[0][1])
        average = self.found("docs/a.md", (" ".join(["word"] * 21) + ". ") * 4)
        self.assertEqual(average, [["docs/a.md:1", "21.0 words a sentence, more than 20"]])
        for unread in ("```\n" + long * 3 + "\n```\n", "| " + long + " |\n", "    " + long, "# " + long):
            self.assertEqual(self.found("docs/a.md", short * 3 + "\n\n" + unread), [], unread)
        self.assertEqual(self.found("docs/notes/a.md", long * 3), [])


if __name__ == "__main__":
    unittest.main()
