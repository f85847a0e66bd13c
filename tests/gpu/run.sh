#!/bin/bash
# Everything that needs a GPU in one run: tests, jobs and measurements, with one report.
#
#   tests/gpu/run.sh [--out DIR] [--fresh] [--seconds N] [--jobs N] [--only PART] [--list]
#
# In a repository it builds first; in an unpacked bundle (tools/gpu_bundle) it runs the programs there.
# Finished parts are kept in DIR and not repeated, unless --fresh is given. It changes no setting of
# the GPU and stops at once if there is none.
#
# Exit codes: 0 all passed or were skipped with a reason, 1 something failed, 2 wrong arguments, 3 no GPU
# here, 4 this machine cannot run it, 5 the time was up before the last part: run it again, 6 the runner
# itself is at fault, 130 it was stopped.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2> /dev/null; then
  echo "tests/gpu/run.sh: no python3 here of 3.8 or newer" >&2
  exit 4
fi
root=$here
[ -f "$here/MANIFEST.json" ] || root=$(cd "$here/../.." && pwd)
# Not `python3 -m`: a package `tests` of the current folder would be taken for ours.
start='import runpy, sys; sys.path[0] = sys.argv.pop(1); runpy.run_module("tests.gpu.run", run_name="__main__", alter_sys=True)'
PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 exec python3 -c "$start" "$root" "$@"
