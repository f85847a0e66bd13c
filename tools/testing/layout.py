"""Rules of the layout: how full a folder is, which folders include each other, names, headers with one user."""

import collections
import os
import re

FILES_IN_FOLDER = 40
ONE_USER_PERCENT = 30
CXX = (".h", ".cc", ".cu", ".cuh")
PRODUCT = ("attention/", "base/", "proto/", "server/", "worker/", "client/")


def includes(texts):
    """(path, line, included path) of each include of a file of the repository."""
    for path, text in texts.items():
        if path.endswith(CXX):
            for number, line in enumerate(text.splitlines(), 1):
                found = re.match(r'#include "([^"]+)"', line)
                if found and found[1] in texts:
                    yield path, number, found[1]


def check_full_folders(texts):
    count = collections.Counter(os.path.dirname(path) for path in texts)
    for folder, files in sorted(count.items()):
        if files > FILES_IN_FOLDER:
            yield f"{folder}: {files} source files, more than {FILES_IN_FOLDER}: a folder is one concept"


def check_circles(texts):
    edges = {}
    for path, number, included in includes(texts):
        edges.setdefault((os.path.dirname(path), os.path.dirname(included)), (path, number, included))
    for (a, b), (path, number, included) in sorted(edges.items()):
        if a < b and (b, a) in edges:
            back = edges[b, a]
            yield f"{path}:{number}: {a} includes {included}, and {back[0]}:{back[1]} includes {back[2]}: folders form a tree"


def check_names(texts):
    """Tests have the name of what they test, so they may repeat names; programs have a main.cc each."""
    places = collections.defaultdict(list)
    for path in texts:
        if path.endswith(CXX) and not path.startswith("tests/"):
            places[os.path.basename(path)].append(path)
    places.pop("main.cc", None)
    for name, paths in sorted(places.items()):
        first, *others = sorted(paths)
        for path in others:
            yield f"{path}: {first} has the same name: a name stands for one thing"


def check_users(texts):
    """A header that one other unit includes belongs to that unit, where nothing else speaks for it."""
    users = collections.defaultdict(set)
    for path, _, included in includes(texts):
        unit = os.path.splitext(path)[0]
        if not path.startswith("tests/") and unit != os.path.splitext(included)[0]:
            users[included].add(unit)
    headers = [path for path in texts if path.endswith(".h") and path.startswith(PRODUCT)]
    one = [path for path in headers if len(users[path]) == 1]
    if len(one) * 100 > len(headers) * ONE_USER_PERCENT:
        yield (
            f"{len(one)} of {len(headers)} headers have one user, more than {ONE_USER_PERCENT} %: "
            f"merge one into its user, for instance {min(one, key=lambda path: (len(texts[path]), path))}"
        )


def check(texts):
    """Findings over all source files; `texts` has the text of each path."""
    for rule in (check_full_folders, check_circles, check_names, check_users):
        yield from rule(texts)
