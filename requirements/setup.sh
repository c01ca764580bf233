#!/usr/bin/env bash
# Creates .venv and installs the locked packages. Called by `make setup`; needs only Python 3.11 or newer with pip.
#
#   EXTRAS       space- or comma-separated: gpu, llm, notebooks (added to the CPU lock, kept by later calls)
#   PYTHON       interpreter that creates the environment (default python3)
#   TORCH        what to install as torch (default the version below)
#   TORCH_INDEX  package index for torch alone, e.g. the CPU or a CUDA index of PyTorch
#
# A second call finds a stamp named after the content of the lock files and returns at once.
set -euo pipefail
cd "$(dirname "$0")/.."

torch=${TORCH:-torch==2.13.0}
python=${PYTHON:-python3}
extras=${EXTRAS:-}
extras=${extras//,/ }

for extra in $extras; do
    case $extra in
    gpu | llm | notebooks) ;;
    *)
        echo "setup: unknown extra '$extra'; choose from gpu, llm, notebooks" >&2
        exit 2
        ;;
    esac
done

digest=$(cat pyproject.toml requirements/setup.sh requirements/*.lock | cksum | cut -d ' ' -f 1)
stamp=.venv/.setup-$digest

has() { # has EXTRA: was it installed from the present locks?
    grep -qx "$1" "$stamp" 2>/dev/null
}

missing=
for extra in $extras; do
    has "$extra" || missing="$missing $extra"
done
if [ -f "$stamp" ] && [ -x .venv/bin/python ] && [ -z "$missing" ]; then
    exit 0
fi

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "setup: $("$python" --version) is too old; Python 3.11 or newer is needed (make setup PYTHON=python3.12)" >&2
    exit 2
fi

# Extras of an earlier call stay: they are installed again from the new locks.
for old in .venv/.setup-*; do
    [ -f "$old" ] && missing="$missing $(cat "$old")"
done
# shellcheck disable=SC2086  # word splitting is meant
wanted=$(printf '%s\n' $missing | sort -u)

[ -x .venv/bin/python ] || "$python" -m venv .venv
pip() { .venv/bin/python -m pip --disable-pip-version-check --quiet "$@"; }

echo "setup: installing $torch"
pip install ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "$torch"
echo "setup: installing requirements/cpu.lock"
pip install --no-deps --require-hashes -r requirements/cpu.lock
for extra in $wanted; do
    echo "setup: installing requirements/$extra.lock"
    # Two builds of faiss share one import name; only one may be there.
    [ "$extra" != gpu ] || pip uninstall --yes faiss-cpu faiss-gpu
    pip install --no-deps --require-hashes -r "requirements/$extra.lock"
done
echo "setup: installing this project in editable mode"
pip install --no-deps --no-build-isolation --editable .

rm -f .venv/.setup-*
printf '%s\n' $wanted >"$stamp"
echo "setup: done"
