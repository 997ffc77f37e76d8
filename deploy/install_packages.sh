# Install the packages of a lock file into the current directory, and remove all that does not run: sh install_packages.sh LOCK.
set -eu
pip install --no-cache-dir --no-compile --only-binary :all: --no-deps --require-hashes --target . --requirement "$1"
# Symbols for debuggers (40 MB), tests, commands, sources in C, other databases and drivers than the gateway's, colors of code and Markdown.
find . -name '*.so' -exec strip --strip-unneeded '{}' +
rm -r bin include cffi* pycparser* markdown_it* mdurl* pygments* alembic/testing sqlalchemy/testing \
    sqlalchemy/dialects/mssql sqlalchemy/dialects/mysql sqlalchemy/dialects/oracle \
    websockets/legacy websockets/sync websockets/trio
find . -depth \( -type d -name tests -o -type d -name sboms -o -name 'mypy*' -o -name '*.pyi' -o -name '*.pyx' \
    -o -name '*.pxd' -o -name '*.cpp' -o -name '*.h' -o -name '*.hpp' \) -exec rm -r '{}' +
# The image is read-only, so Python compiles all modules here, without docstrings.
python3 -m compileall -q -b -o 2 .
find . -name '*.py' -delete
# The list of all packages that are left.
printf '#!/bin/sh\nPYTHONPATH=%s exec python3 -S "$@"\n' "$PWD" >/python
chmod +x /python
PYTHONPATH=/sbom python3 -m cyclonedx_py environment --output-reproducible --output-file sbom.cdx.json /python
