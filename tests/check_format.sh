#!/bin/sh
# check_format.sh - clang-format and line lengths of all C sources; names every file that differs.
# Exit status: 0 clean, 1 not, 77 when clang-format is not installed.
set -u
cd "$(dirname "$0")/.." || exit 1
command -v clang-format >/dev/null || {
    echo "clang-format is not installed"
    exit 77
}
bad=0
files=$(find compiler frontends runtime tests -name '*.[ch]' | LC_ALL=C sort)
for f in $files; do
    clang-format --dry-run -Werror "$f" >/dev/null 2>&1 || {
        echo "$f: run clang-format -i on it"
        bad=$((bad + 1))
    }
done
long=$(for f in $files; do
    awk -v f="$f" 'length($0) > 110 { print f ":" NR ": " length($0) " columns" }' "$f"
done)
[ -n "$long" ] && {
    echo "$long"
    bad=$((bad + 1))
}
echo "$(echo "$files" | wc -l) files, $bad findings"
[ "$bad" -eq 0 ]
