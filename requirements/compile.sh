#!/usr/bin/env bash
# Rewrites the hash-locked requirement files. For maintainers; needs `uv` on the path. Users need only pip.
#
#   requirements/compile.sh             keep the present pins wherever the ranges of pyproject.toml allow it
#   requirements/compile.sh --upgrade   take the newest versions
#
# torch and its CUDA packages are left out: which build is right depends on the machine (requirements/setup.sh).
set -euo pipefail
cd "$(dirname "$0")/.."

no_torch=$(mktemp)
trap 'rm -f "$no_torch"' EXIT
echo "torch ; python_version < '3'" >"$no_torch"

lock() { # lock NAME ARGUMENT...: compile to requirements/NAME.lock
    local file=requirements/$1.lock
    shift
    uv pip compile --quiet --no-config --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
        --override "$no_torch" --output-file "$file" "$@"
    sed -i.bak "1i\\
# Written by requirements/compile.sh; do not edit. torch is installed before this file (requirements/setup.sh)." "$file"
    rm -f "$file.bak"
}

# runtime.in pins what torch would otherwise pull in unpinned.
lock cpu "$@" --no-strip-extras --extra dev --extra tracking --extra launchers --extra llm pyproject.toml requirements/runtime.in
for extra in gpu llm notebooks; do
    lock "$extra" "$@" --constraint requirements/cpu.lock "requirements/$extra.in"
done
