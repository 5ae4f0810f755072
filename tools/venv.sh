#!/bin/sh
# Makes .venv with Python 3.11, 3.10 or 3.9 (the first base), or else with 3.12 or 3.13 (the second): one that is
# installed, or, if there is none, 3.11 fetched by uv. PYTHON=/path/to/python make test  chooses one by hand.
# VENV=.venv-current names another folder, NEWEST=1 takes the second base only.
set -eu

between() {  # candidate, lowest, highest: runs it, as a version manager may list a Python that does not start
    [ "$("$1" - "$2" "$3" 2>/dev/null <<'PY'
import sys, venv, ensurepip
# A Python 3.9 that has the old `parser` module compiled in would hide our parser.py.
fits = (3, int(sys.argv[1])) <= sys.version_info[:2] <= (3, int(sys.argv[2]))
print(fits and "parser" not in sys.builtin_module_names)
PY
    )" = True ]
}

make_with() {
    echo "Making ${VENV:-.venv} with $("$1" --version)"
    exec "$1" -m venv --clear "${VENV:-.venv}"
}

lowest=9
[ -z "${NEWEST:-}" ] || lowest=12  # NEWEST=1: the second base only
if [ -n "${PYTHON:-}" ]; then
    between "$PYTHON" "$lowest" 13 && make_with "$PYTHON"
    echo "PYTHON=$PYTHON: expected a Python 3.$lowest to 3.13 with its venv module" >&2
    exit 1
fi

versions="${HOME:-}/.pyenv/versions"
[ -n "${NEWEST:-}" ] ||
for candidate in python3.11 python3.10 python3.9 python3 python \
    "$versions"/3.11.*/bin/python "$versions"/3.10.*/bin/python "$versions"/3.9.*/bin/python; do
    if between "$candidate" 9 11; then make_with "$candidate"; fi
done
for candidate in python3.12 python3.13 python3 python "$versions"/3.12.*/bin/python "$versions"/3.13.*/bin/python; do
    if between "$candidate" 12 13; then make_with "$candidate"; fi
done

if [ -n "${NEWEST:-}" ]; then
    echo "No Python 3.12 or 3.13 found" >&2
    exit 1
fi
echo "No Python 3.9 to 3.13 found; fetching 3.11 with uv"
uv=$(command -v uv || true)
if [ -z "$uv" ]; then
    python3 -m venv .tools/uv && .tools/uv/bin/pip install --quiet uv && uv=.tools/uv/bin/uv || true
fi
if [ -n "$uv" ] && "$uv" venv --clear --seed --python 3.11 "${VENV:-.venv}"; then
    exit 0
fi
cat >&2 <<'MESSAGE'
Expected a Python 3.9 to 3.13 with its venv module. None was found, and uv could not fetch one.
Install Python 3.11 (Debian: also python3.11-venv), or name one: PYTHON=/path/to/python3.11 make test
MESSAGE
exit 1
