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

def _python_tools_impl(repository_ctx):
    venv = repository_ctx.path(Label("//:WORKSPACE")).dirname.get_child(".venv")
    for tool in _TOOLS:
        repository_ctx.file(tool, _SCRIPT.format(venv = venv, tool = tool), executable = True)
    repository_ctx.file("BUILD", "exports_files(%r)\n" % _TOOLS)

python_tools = repository_rule(
    implementation = _python_tools_impl,
    local = True,
)
