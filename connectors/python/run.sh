#!/usr/bin/env bash
# Builds the package, installs it from the wheel beside the versions of requirements.txt, checks it, and
# tests it against the real headgate (HEADGATE) with real Starlette, Flask and Django under real servers.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
ENV=$PWD/../../bin/connectors/python
if [ requirements.txt -nt "$ENV/installed" ]; then
	rm -rf "$ENV"
	python3 -m venv "$ENV"
	"$ENV/bin/pip" install -q --require-hashes -r requirements.txt
	touch "$ENV/installed"
fi
PATH=$ENV/bin:$PATH
rm -rf "$ENV/dist" build
python -m build --no-isolation --outdir "$ENV/dist" . >"$ENV/build.log" || { cat "$ENV/build.log" >&2; exit 1; }
pip install -q --no-deps --force-reinstall "$ENV"/dist/*.whl
ruff check -q headgate tests
ruff format -q --check headgate tests
mypy
pytest -q --durations=5 "$@"
