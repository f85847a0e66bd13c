#!/bin/bash
# Runs one Python file of unittest cases with the project's Python (.venv), and writes test.xml with
# its cases. First argument: the file, relative to the workspace.
set -euo pipefail
export PYTHONPATH=$PWD PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
exec external/python_tools/python -m tools.testing.unittest_xml "$@"
