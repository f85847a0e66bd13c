"""Each layout rule finds what breaks it, and nothing in what keeps it."""

import unittest

from tools.testing import layout


def file(*included):
    return "".join(f'#include "{path}"\n' for path in included)


class LayoutTest(unittest.TestCase):
    def test_full_folders(self):
        files = {f"client/cli/{i}.cc": "" for i in range(40)}
        self.assertEqual(list(layout.check_full_folders(files)), [])
        files["client/cli/40.py"] = ""
        self.assertEqual(
            list(layout.check_full_folders(files)),
            ["client/cli: 41 source files, more than 40: a folder is one concept"],
        )

    def test_circles(self):
        tree = {"a/x.h": file("b/y.h"), "b/y.h": file("c/z.h"), "c/z.h": "", "a/w.cc": file("a/x.h", "c/z.h")}
        self.assertEqual(list(layout.check_circles(tree)), [])
        tree["b/u.cc"] = file("c/z.h", "a/x.h")
        self.assertEqual(
            list(layout.check_circles(tree)),
            ["a/x.h:1: a includes b/y.h, and b/u.cc:2 includes a/x.h: folders form a tree"],
        )

    def test_names(self):
        files = {"client/a.h": "", "server/b.h": "", "server/main.cc": "", "worker/main.cc": "", "tests/client/a.h": ""}
        self.assertEqual(list(layout.check_names(files)), [])
        files["server/a.h"] = ""
        self.assertEqual(
            list(layout.check_names(files)),
            ["server/a.h: client/a.h has the same name: a name stands for one thing"],
        )

    def test_users(self):
        headers = {f"client/{i}.h": "" for i in range(10)}
        users = {f"server/user_{i}_{j}.cc": file(f"client/{i}.h") for i in range(10) for j in range(2 if i > 2 else 1)}
        self.assertEqual(list(layout.check_users({**headers, **users})), [])
        own = {"client/3.cc": file("client/3.h"), "tests/3_test.cc": file("client/3.h")}
        del users["server/user_3_1.cc"]
        found = list(layout.check_users({**headers, **users, **own}))
        self.assertEqual(len(found), 1)
        self.assertTrue(found[0].startswith("4 of 10 headers have one user, more than 30 %"), found)

    def test_all_rules_are_asked(self):
        files = {f"base/{i}.h": "" for i in range(41)}
        files.update({"a/x.h": file("b/y.h"), "b/y.h": file("a/x.h"), "server/1.h": file("base/1.h")})
        self.assertEqual(len(list(layout.check(files))), 3)


if __name__ == "__main__":
    unittest.main()
