#!/bin/sh
# Makes .venv with Python 3.11, 3.10 or 3.9: one that is installed, or else 3.11 fetched by uv.
# PYTHON=/path/to/python make test  chooses one by hand.
set -eu

usable() {  # runs the candidate: a version manager may list a Python that does not start
    [ "$("$1" - 2>/dev/null <<'PY'
import sys, venv, ensurepip
# A Python 3.9 that has the old `parser` module compiled in would hide our parser.py.
print((3, 9) <= sys.version_info[:2] <= (3, 11) and "parser" not in sys.builtin_module_names)
PY
    )" = True ]
}

if [ -n "${PYTHON:-}" ] && ! usable "$PYTHON"; then
    echo "PYTHON=$PYTHON: expected a Python 3.9 to 3.11 with its venv module" >&2
    exit 1
fi

for candidate in ${PYTHON:-} python3.11 python3.10 python3.9 python3 python \
        "${HOME:-}"/.pyenv/versions/3.11.*/bin/python "${HOME:-}"/.pyenv/versions/3.10.*/bin/python; do
    if usable "$candidate"; then
        echo "Making .venv with $("$candidate" --version)"
        exec "$candidate" -m venv --clear .venv
    fi
done

echo "No Python 3.9 to 3.11 found; fetching 3.11 with uv"
uv=$(command -v uv || true)
if [ -z "$uv" ]; then
    python3 -m venv .tools/uv && .tools/uv/bin/pip install --quiet uv && uv=.tools/uv/bin/uv || true
fi
if [ -n "$uv" ] && "$uv" venv --clear --seed --python 3.11 .venv; then
    exit 0
fi
cat >&2 <<'MESSAGE'
Expected a Python 3.9, 3.10 or 3.11 (tensorflow-addons supports no newer one) with its venv module. None was found,
and uv could not fetch one. Install Python 3.11 (Debian: also python3.11-venv), or name one: PYTHON=/path/to/python3.11 make test
MESSAGE
exit 1
