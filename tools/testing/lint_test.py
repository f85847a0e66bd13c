"""tools/lint finds what breaks a house rule, and nothing in what keeps them."""

import unittest

from tools.testing import lint

FUNCTION = "absl::Status F(int a,\n               int b) {\n%s}\n"


class LintTest(unittest.TestCase):
    def findings(self, path, text):
        return [finding.split(": ", 1)[1] for finding in lint.check(path, text)]

    def test_sizes(self):
        self.assertEqual(self.findings("server/a.h", "\n" * 200), [])
        self.assertEqual(self.findings("server/a.h", "\n" * 201), ["201 lines, more than 200"])
        self.assertEqual(self.findings("server/a.cc", "\n" * 600), [])
        for path in ("server/a.cc", "tests/a_test.py", "tools/a.py"):
            self.assertEqual(self.findings(path, "\n" * 601), ["601 lines, more than 600"])
        self.assertEqual(self.findings("tests/a_test.py", "\n" * 600), [])

    def test_functions(self):
        short = "int x;\n\nnamespace a {\n" + FUNCTION % ("  G();\n\n" * 33) + "}\n"
        self.assertEqual(self.findings("server/a.cc", short), [])
        long = short + FUNCTION % ("  G();\n" * 68)
        self.assertEqual(self.findings("server/a.cc", long), ["a function of 71 lines, more than 70"])

    def test_methods_in_a_class(self):
        for count, wanted in ((68, []), (69, ["a function of 71 lines, more than 70"])):
            method = "  void M() {\n" + "    G();\n" * count + "  }\n"
            text = "template <typename T>\nclass A {\n public:\n" + method + "  int b_;\n};\n"
            self.assertEqual(self.findings("server/a.cc", text), wanted)

    def test_rooms(self):
        def of(path, room):
            return self.findings(path, f'#include "{room}/x.h"\n')

        self.assertEqual(of("attention/a.cc", "attention"), [])
        self.assertEqual(of("attention/a.cc", "proto"), ["attention may not include proto"])
        self.assertEqual(of("server/a.cc", "worker"), ["server may not include worker"])
        self.assertEqual(of("server/a.cc", "client"), ["server may not include client"])
        self.assertEqual(of("server/gateway/a.cc", "client"), [])
        self.assertEqual(of("worker/a.cc", "tests"), ["worker may not include tests"])
        self.assertEqual(of("tests/a.cc", "worker"), [])

    def test_forbidden_words(self):
        for path, text in [
            ("worker/a.cc", "absl::" + "Mutex m;"),
            ("worker/a.cc", "// TO" + "DO: later"),
            ("tests/a_test.cc", "std::this_thread::sleep" + "_for(x);"),
            ("server/a.cc", '#include "gloo/context.h"'),
            ("worker/a.cc", "#include <cuda_runtime_api.h>"),
            ("worker/comm/a.h", '#include "nccl.h"'),
            ("attention/a.cc", "#include <grpcpp/grpcpp.h>"),
        ]:
            with self.subTest(text=text):
                self.assertTrue(self.findings(path, text + "\n"))
        for path, text in [
            ("tests/a_test.py", "time.sl" + "eep(1)"),
            ("tests/end_to_end/harness/cluster.py", "from ti" + "me import sleep"),
            ("tools/testing/a_test.py", "    time.sl" + "eep(0.01)"),
            ("tools/a.py", "# TO" + "DO: later"),
        ]:
            with self.subTest(text=text):
                self.assertTrue(self.findings(path, text + "\n"))
        for path in ("tools/a.py", "tests/gpu/runner.py"):
            self.assertEqual(self.findings(path, "time.sl" + "eep(1)\n"), [])
        self.assertEqual(self.findings("tests/a.py", '#include "gloo/context.h"\n' * 400), [])
        self.assertEqual(self.findings("worker/comm/gloo_a.cc", '#include "gloo/context.h"\n'), [])
        for path in ("worker/device/cuda_a.cc", "worker/kernel/cuda/a.h", "tests/a.cu"):
            self.assertEqual(self.findings(path, "#include <cuda_runtime.h>\n"), [])
        self.assertEqual(self.findings("worker/a.cc", "std::this_thread::sleep" + "_for(x);\n"), [])

    def test_one_name_is_one_class(self):
        def file(name, head="class A", namespace="annulus "):
            return {name: "namespace %s{\n\n%s {\n};\n\n}  // namespace annulus\n" % (namespace, head)}

        def of(*files):
            return list(lint.check_classes({path: text for one in files for path, text in one.items()}))

        a = file("client/a.h")
        self.assertEqual(
            of(a, file("server/b.h")), ["server/b.h:3: annulus::A is defined in client/a.h as well"]
        )
        self.assertEqual(len(of(a, file("client/b.cc", "struct A : public std::string"))), 1)
        self.assertEqual(len(of(a, file("tests/b.h"))), 1)
        self.assertEqual(len(of(file("client/a.cc", "struct B::C"), file("server/a.cc", "struct B::C"))), 1)
        self.assertEqual(of(a, file("server/b.h", "class A;\nclass B")), [])
        self.assertEqual(of(a, file("server/b.h", namespace="annulus::bench ")), [])
        self.assertEqual(of(a, {"server/b.cc": "namespace annulus {\nnamespace {\nclass A {\n};\n"}), [])
        self.assertEqual(of(file("tests/a_test.cc"), file("tests/b_test.cc")), [])

    def test_reasons_are_what_the_page_says(self):
        page = "`PROSE_WORD`\n| code | reasons |\n|---|---|\n| CODE_NAME | `BAD_THING` `GONE` | words |\n"

        def of(text, path="server/a.cc"):
            return list(lint.check_reasons({path: text}, page))

        both = 'F("BAD_THING"); F("GONE");'
        self.assertEqual(of(both), [])
        self.assertEqual(of(both + 'F("NEW_THING")'), ["server/a.cc: NEW_THING is not in docs/reference/errors.md"])
        self.assertEqual(of('F("BAD_THING", "BF16")'), ["docs/reference/errors.md: GONE is made nowhere"])
        self.assertEqual(len(of(both, "tests/a_test.cc")), 2)


if __name__ == "__main__":
    unittest.main()
