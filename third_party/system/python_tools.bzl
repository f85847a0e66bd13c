"""The Python tools that tools/setup installs in .venv, as @python_tools//:NAME.

Each is a small script that runs the tool from the workspace's .venv, so that building needs no .venv
and a test without one says what to do.
"""

_TOOLS = [
    "grpcurl",
    "kubectl",
    "kubernetes-validate",
    "python",
]

_SCRIPT = """#!/bin/bash
tool={venv}/bin/{tool}
[ -x "$tool" ] || {{ echo "$tool is missing: run tools/setup" >&2; exit 1; }}
exec "$tool" "$@"
"""

# It looks for the nvdisasm beside it on the path. Neither is a script of the .venv.
_CUOBJDUMP = """#!/bin/bash
folder=$(echo {venv}/lib/python3*/site-packages/nvidia/cu13/bin)
[ -x "$folder/cuobjdump" ] || {{ echo "$folder/cuobjdump is missing: run tools/setup" >&2; exit 1; }}
PATH=$folder:$PATH exec "$folder/cuobjdump" "$@"
"""

def _python_tools_impl(repository_ctx):
    venv = repository_ctx.path(Label("//:WORKSPACE")).dirname.get_child(".venv")
    for tool in _TOOLS:
        repository_ctx.file(tool, _SCRIPT.format(venv = venv, tool = tool), executable = True)
    repository_ctx.file("cuobjdump", _CUOBJDUMP.format(venv = venv), executable = True)
    repository_ctx.file("BUILD", "exports_files(%r)\n" % (_TOOLS + ["cuobjdump"]))

python_tools = repository_rule(
    implementation = _python_tools_impl,
    local = True,
)
