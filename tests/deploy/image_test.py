"""The image of deploy/Dockerfile has the libraries that the programs ask for."""

import re
import subprocess
import unittest

PROGRAMS = ("bin/annulus", "bin/annulus-coordinator", "bin/annulus-worker")


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def named_in(path):
    """The library packages that the image installs."""
    with open(path, encoding="utf-8") as file:
        return set(re.findall(r"\blib[a-z+]+[0-9][0-9.]*", file.read()))


def with_dependencies(packages):
    """These and, of what is installed here, all that they depend on."""
    depends = {}
    for line in output("dpkg-query", "-W", "-f", "${Package}\t${Pre-Depends},${Depends}\n").splitlines():
        name, _, others = line.partition("\t")
        depends[name] = {re.split(r"[ :(]", each.strip())[0] for each in re.split(r"[,|]", others) if each.strip()}
    found, left = set(), set(packages)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left |= depends.get(name, set())
    return found


def libraries_of(program):
    """The paths of the shared libraries that a program loads, by name."""
    return dict(re.findall(r"^\s*(\S+) => (/\S+)", output("ldd", program), re.MULTILINE))


def owners_of(paths):
    """The packages of files. /lib is a link to /usr/lib, and packages know one of both."""
    known = [where for path in paths for where in (path, "/usr" + path)]
    found = subprocess.run(("dpkg-query", "-S", *known), capture_output=True, text=True, check=False).stdout
    return {path.removeprefix("/usr"): package for package, path in re.findall(r"^([^:]+)\S*: (\S+)$", found, re.MULTILINE)}


class ImageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.named = named_in("deploy/Dockerfile")
        libraries = {program: libraries_of(program) for program in PROGRAMS}
        owners = owners_of(sorted({path for paths in libraries.values() for path in paths.values()}))
        cls.packages = {
            program: {name: owners.get(path.removeprefix("/usr"), "nobody") for name, path in paths.items()}
            for program, paths in libraries.items()
        }

    def test_it_has_every_library_of_the_programs(self):
        there = with_dependencies(self.named)
        for program, packages in self.packages.items():
            with self.subTest(program=program):
                self.assertIn("libgrpc++.so.1.51", packages)
                missing = {name: package for name, package in packages.items() if package not in there}
                self.assertEqual(missing, {})

    def test_it_names_none_that_nobody_loads(self):
        loaded = {package for packages in self.packages.values() for package in packages.values()}
        self.assertEqual(self.named - loaded, set())


if __name__ == "__main__":
    unittest.main()
