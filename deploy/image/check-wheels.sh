#!/usr/bin/env bash
# Whether every locked runtime dependency has a wheel, with a hash that the lock knows, for each platform of the image:
# `make wheels`. Only pip's resolver runs; nothing is installed. Other Pythons: PYTHON_VERSIONS="3.11 3.12".
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=${PYTHON:-python3}

failed=0
for machine in x86_64 aarch64; do
    # What a system with glibc 2.28 or later (Debian 10, RHEL 8) can run.
    platforms=()
    for glibc in 2014 _2_17 _2_27 _2_28; do platforms+=(--platform "manylinux${glibc}_$machine"); done
    for version in ${PYTHON_VERSIONS:-3.11}; do
        if "$python" -m pip install --quiet --disable-pip-version-check --dry-run --ignore-installed \
            --target build/none --no-deps --only-binary :all: --require-hashes "${platforms[@]}" \
            --python-version "$version" --implementation cp --requirement requirements.lock; then
            echo "$machine, Python $version: every dependency has a wheel"
        else
            echo "$machine, Python $version: see above for what is missing" >&2
            failed=1
        fi
    done
done
exit "$failed"
