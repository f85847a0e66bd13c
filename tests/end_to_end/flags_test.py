"""Every flag of every program: its help says what it is, and a value that it cannot take ends with one line and 2."""

import re
import unittest

from tests.end_to_end.harness import cluster

COMMANDS = (
    ("annulus-coordinator",), ("annulus-worker",),
    ("annulus", "attend"), ("annulus", "gradients"), ("annulus", "release"), ("annulus", "cancel"),
    ("annulus", "merge"),
    ("annulus", "plan"), ("annulus", "cluster"), ("annulus", "shard"), ("annulus", "unshard"),
    ("annulus", "serve"),
)
# An option of --help: the flag, its form with the default, and its description if it is on the same
# line.
OPTION = re.compile(
    r"  (?:-h,)?(--[a-z0-9-]+)(?: ([A-Z,[\]]+, .*?(?= {2}|$)|\S+))?(?: +(\S.*))?$"
)
# Text that may be between the form and the description.
RULES = re.compile(r"(?: (?:Excludes|Needs):(?: --[a-z0-9-]+)+| \(Env:[A-Z_]+\)| \.\.\.| REQUIRED)+(?= |$)")
SWITCHES = {
    "--lse-rest",
    "--all", "--bf16-partials", "--d-bias", "--deterministic", "--help", "--json", "--nonfinite-lse-is-empty", "--or-upload",
    "--pin", "--release", "--version",
}
TIMES = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
SIZES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def flags_of(help_text):
    """(flag, form, help) of each option: `--flag FORM=default  help`, the help perhaps on the next line."""
    lines = help_text.split("Options:\n", 1)[1].split("\n\n", 1)[0].splitlines()
    for index, line in enumerate(lines):
        found = OPTION.match(RULES.sub("  ", line).rstrip())
        if found is None:
            continue
        text = found[3]
        if text is None and index + 1 < len(lines) and lines[index + 1].startswith(" " * 20):
            text = lines[index + 1].strip()
        yield found[1], found[2] or "", text or ""


def counted(text, units):
    number, unit = re.fullmatch(r"(\d+)([a-zA-Z]*)", text).groups()
    return int(number) * (units[unit] if unit else 1)


def wrong_values(form):
    """Values that a flag of this form must refuse; None if the form implies none."""
    form = form.split("=")[0] if not form.startswith("--") else form
    if found := re.fullmatch(r"NUMBER, (-?\d+) to (\d+) [a-z]+", form):
        return str(int(found[1]) - 1), str(int(found[2]) + 1), "1.5", "many"
    if found := re.fullmatch(r"(TIME|BYTES), (?:0 or )?(\w+) to (\w+)", form):
        units, smallest = (TIMES, "ns") if found[1] == "TIME" else (SIZES, "B")
        low, high = (counted(end, units) for end in (found[2], found[3]))
        return f"{low - 1}{smallest}", f"{high + 1}{smallest}", "some"
    if found := re.fullmatch(r"NAME, (\d) to (\d+) characters", form):
        return ("x" * (int(found[2]) + 1),)
    if re.fullmatch(r"[a-z0-9-]+(\|[a-z0-9-]+)+", form):
        return "no-such-word", form.replace("|", "-")
    return {
        "HOST:PORT": ("nowhere", "here:65536"),
        "HOST[:PORT]": ("no where", "here:port"),
        "HOST|if:NAME": ("if:", "no where"),
        "cpu|auto|cuda:N": ("gpu", "cuda:", "cuda:-1"),
        "cuda:N": ("cpu", "auto", "cuda:", "cuda:-1"),
        "NAME[,NAME…]": ("", "a,,b"),
        "N[-M][,N[-M]…]": ("", "a", "1-", "3-2", "1,,2", "1,1", "1024", "-1"),
        "LIBRARY": ("",),
        "LIBRARY|off": ("",),
        "[DIR/]FILE": ("",),
        "B,Sq,Skv,Hq,Hkv,D[,Dv],dtype,seed": ("1,2,3", "1,1,1,1,1,1,fp64,1", "1,-1,1,1,1,1,fp32,1"),
        "NUMBER, 0 or 2^-64 to 2^64 in magnitude": ("nan", "-inf", "1e39", "-1e20", "1e-20", "half"),
        "NUMBER, 2^-64 to 2^64": ("0", "-30", "nan", "inf", "1e30", "half"),
        "LEFT[,RIGHT], 0 to 67108864 keys": ("-1", "67108865", "5,", ",5", "5,-1", "1,2,3", "1.5", "many"),
        "RATE,SEED": ("0.1", "1,5", "-0.1,5", "nan,5", "0.1,-1", "0.1,18446744073709551616", "0.1,5,5", "0.1,x"),
        "--FLAG=VALUE": ("lease=5s",),
    }.get(form)


class FlagsTest(unittest.TestCase):
    def each_flag(self):
        for command in COMMANDS:
            done = cluster.run(*command, "--help")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            for flag, form, text in flags_of(done.stdout):
                yield command, flag, form, text

    def test_every_flag_says_what_it_is_and_what_it_takes(self):
        flags = set()
        for command, flag, form, text in self.each_flag():
            flags.add(flag)
            with self.subTest(command=command, flag=flag):
                self.assertGreater(len(text.split()), 2, text)
                if flag in SWITCHES:
                    self.assertEqual(form, "")
                else:
                    self.assertIsNotNone(wrong_values(form), f"no form, unit or range: {form!r}")
        for known in ("--lease", "--threads", "--synthetic", "--scale", "--wait", "--workers", "--json", "--check-hopper-on"):
            self.assertIn(known, flags)  # The help was read.

    def test_every_flag_refuses_what_it_cannot_take(self):
        for command, flag, form, _ in self.each_flag():
            for value in () if flag in SWITCHES else wrong_values(form) or ():
                with self.subTest(command=command, flag=flag, value=value):
                    done = cluster.run(*command, *((f"{flag}={value}",) if value else (flag, "")))
                    self.assertEqual((done.returncode, done.stdout), (2, ""))
                    self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
                    self.assertIn(flag, done.stderr)

    def test_an_abort_has_the_time_of_a_connect(self):
        # Refused for the other two besides, so that no worker starts.
        done = cluster.run("annulus-worker", "--abort-timeout=5s", "--stall-timeout=2s", "--step-timeout=3s")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--abort-timeout", done.stderr)

    def test_a_lease_is_longer_than_the_time_between_beats(self):
        done = cluster.run("annulus-coordinator", "--lease=1s", "--beat-interval=1s")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertEqual(done.stderr, "annulus-coordinator: --lease: must be longer than --beat-interval\n")

    def test_a_command_that_says_too_little_is_told_what_is_missing(self):
        gradients = ("gradients", "--handle", "4f")
        for command, told in (
            (("atend", "--input", "in"), "annulus: unknown command 'atend'; the commands are attend, gradients, "),
            (("\x1b[2J",), "annulus: unknown command '\\x1b[2J'"),
            ((), "annulus: A subcommand is required"),
            (("plan",), "annulus plan: --input, --synthetic or a whole --spec is needed"),
            (("attend",), "annulus attend: --input or --synthetic is needed"),
            (gradients, "annulus gradients: --input is needed"),
            ((*gradients, "--or-upload"), "annulus gradients: --input is needed"),
            ((*gradients, "--spec", "s"), "annulus gradients: --handle without --or-upload excludes --spec"),
            ((*gradients, "--window", "5"), "annulus gradients: --handle without --or-upload excludes --window"),
            ((*gradients, "--verify", "5"), "annulus gradients: --handle without --or-upload excludes --verify"),
        ):
            with self.subTest(command=command):
                done = cluster.run("annulus", *command)
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
                self.assertTrue(done.stderr.startswith(told), done.stderr)

    def test_every_program_says_its_version(self):
        for program in ("annulus-coordinator", "annulus-worker", "annulus"):
            done = cluster.run(program, "--version")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertRegex(done.stdout, rf"^{program} \d+\.\d+\.\d+\n$")


if __name__ == "__main__":
    unittest.main()
