#!/bin/sh
# check_includes.sh - include directions: a room includes only rooms above it, and of another room
# only its public header. Also: the runtime includes nothing of the compiler, and each library has
# one door. Prints every violation as FILE:LINE and ends with a count; exit status 1 when there is one.
#
#     sh tests/check_includes.sh [ROOT]        checks the tree
#     sh tests/check_includes.sh --self-test   checks that violations are found
set -u

# Rooms from top to bottom, as "rank room folder public-header...". A room may include rooms of a
# lower rank. layout knows nothing of the IR: it may include base only.
rooms='1 base compiler/base base.h
2 ir compiler/ir ir.h attrs.def ops.def
3 ops compiler/ops ops.h
4 onnx frontends/onnx onnx.h
6 simplify compiler/simplify simplify.h
7 train compiler/train train.h
7 sizes compiler/sizes sizes.h
8 cost compiler/cost cost.h
9 plan compiler/plan plan.h explain.h
9 trace frontends/trace trace.h
10 layout compiler/layout layout.h
11 codegen compiler/codegen codegen.h
12 driver compiler/driver driver.h
20 dtr runtime/dtr dtr.h
20 policy runtime/dtr/policy policy.h
21 core runtime/core dtrt.h dtrt_math.h dtrt_kernels.h dtrt_vecmath.h core.h payload.h
22 cpu runtime/cpu
22 cuda runtime/cuda params.h
22 cudaplan runtime/cuda/plan cuda_plan.h dnn.h
23 ref runtime/ref'

# Edges that the order alone does not give: room, room it may include.
extra='plan layout
cost cpu
cost core
cost cudaplan
plan dtr
plan policy
dtr policy
core ref
cuda cudaplan
codegen core'

# Library headers and the only folders that may include them.
doors='onnx.pb-c.h|protobuf-c/ frontends/onnx/
cjson/ compiler/plan/|compiler/cost/|compiler/driver/measure.c|frontends/trace/|runtime/core/
glpk.h compiler/plan/glpk.c
zlib.h frontends/trace/|runtime/core/
dnnl.h|oneapi/dnnl runtime/cpu/
<cuda.h>|cublas_v2.h|cudnn runtime/cuda/
nvrtc.h compiler/codegen/'

check() {
    root=$1
    { find "$root/compiler" "$root/frontends" "$root/runtime" \( -name '*.c' -o -name '*.h' -o -name '*.def' \) \
        2>/dev/null | LC_ALL=C sort; } |
        ROOMS=$rooms EXTRA=$extra DOORS=$doors awk -v root="$root/" '
    function room_of(path,   i, best) {
        for (i = 1; i <= nroom; i++) if (index(path, dir[i] "/") == 1) best = i
        return best
    }
    function bad(line, text) { printf "%s:%d: %s\n", rel, line, text; nbad++ }
    BEGIN {
        nroom = split(ENVIRON["ROOMS"], row, "\n")
        for (i = 1; i <= nroom; i++) {
            n = split(row[i], f, " ")
            rank[i] = f[1]; name[i] = f[2]; dir[i] = f[3]; number[f[2]] = i
            for (k = 4; k <= n; k++) public[i, f[k]] = 1
        }
        n = split(ENVIRON["EXTRA"], row, "\n")
        for (i = 1; i <= n; i++) { split(row[i], f, " "); allowed[number[f[1]], number[f[2]]] = 1 }
        ndoor = split(ENVIRON["DOORS"], row, "\n")
        for (i = 1; i <= ndoor; i++) { split(row[i], f, " "); pattern[i] = f[1]; door[i] = f[2] }
    }
    { file[NR] = substr($0, length(root) + 1) }
    END {
        for (i = 1; i <= NR; i++) {
            base = file[i]; sub(/.*\//, "", base)
            owner[base] = owner[base] " " room_of(file[i])
            exists[file[i]] = 1
        }
        for (i = 1; i <= NR; i++) check_file(file[i])
        printf "%d includes in %d files, %d violations\n", nincl, NR, nbad
        exit nbad > 0
    }
    function check_file(path,   line, number_of_line, text, from) {
        rel = path; from = room_of(path); number_of_line = 0
        if (!from) { bad(1, "this folder is no room: add it to tests/check_includes.sh"); return }
        while ((getline line < (root path)) > 0) {
            number_of_line++
            if (line !~ /^[ \t]*#[ \t]*include/) continue
            nincl++
            check_doors(line, number_of_line)
            if (line !~ /"/) continue
            text = line; sub(/^[^"]*"/, "", text); sub(/".*/, "", text)
            check_include(from, text, number_of_line)
        }
        close(root path)
    }
    function check_doors(line, at,   i) {
        for (i = 1; i <= ndoor; i++)
            if (line ~ ("[<\"/](" pattern[i] ")") && rel !~ ("^(" door[i] ")"))
                bad(at, "only " door[i] " may include this library")
    }
    function check_include(from, text, at,   base, n, who, to, here) {
        here = rel; sub(/[^\/]*$/, "", here)
        if ((here text) in exists) return
        base = text; sub(/.*\//, "", base)
        n = split(owner[base], who, " ")
        if (!n) return # generated, or of a library
        to = who[1]
        if (to == from) return
        if (name[from] == "layout" && name[to] != "base") { bad(at, "layout may include base only, not " name[to]); return }
        if (rank[from] < 20 && rank[to] >= 20 && !((from, to) in allowed)) { bad(at, name[from] " includes " text " of the runtime"); return }
        if (rank[from] >= 20 && rank[to] < 20) { bad(at, "the runtime includes " text " of the compiler (" name[to] ")"); return }
        if (rank[to] >= rank[from] && !((from, to) in allowed)) { bad(at, name[from] " includes " text " of " name[to] ", a room below it"); return }
        if (!((to, base) in public)) bad(at, text " is private to " name[to])
    }'
}

# A tree with one violation of each kind must give exactly these findings.
self_test() {
    t=$(mktemp -d) || exit 1
    trap 'rm -rf "$t"' EXIT
    mkdir -p "$t/compiler/base" "$t/compiler/ir" "$t/compiler/layout" "$t/compiler/plan" "$t/frontends/onnx" \
        "$t/runtime/core" "$t/compiler/odd"
    touch "$t/compiler/base/base.h" "$t/compiler/ir/ir.h" "$t/compiler/plan/plan.h" "$t/runtime/core/dtrt.h"
    touch "$t/compiler/odd/odd.c"
    printf '#include "ir.h"\n' >"$t/compiler/base/up.c"
    printf '#include "private.h"\n' >"$t/compiler/ir/own.c" && touch "$t/compiler/ir/private.h"
    printf '#include "base.h"\n#include "private.h"\n' >"$t/frontends/onnx/other.c"
    printf '#include <stdio.h>\n#include "ir.h"\n' >"$t/compiler/layout/lay.c"
    printf '#include "../../compiler/base/base.h"\n' >"$t/runtime/core/low.c"
    printf '#include "dtrt.h"\n#include <cjson/cJSON.h>\n' >"$t/compiler/plan/fine.c"
    printf '#include <cjson/cJSON.h>\n' >"$t/compiler/ir/cjson_here.c"
    want='compiler/base/up.c:1: base includes ir.h of ir, a room below it
compiler/ir/cjson_here.c:1: only compiler/plan/|compiler/cost/|compiler/driver/measure.c|frontends/trace/|runtime/core/ may include this library
compiler/layout/lay.c:2: layout may include base only, not ir
compiler/odd/odd.c:1: this folder is no room: add it to tests/check_includes.sh
compiler/plan/fine.c:1: plan includes dtrt.h of the runtime
frontends/onnx/other.c:2: private.h is private to ir
runtime/core/low.c:1: the runtime includes ../../compiler/base/base.h of the compiler (base)
10 includes in 13 files, 7 violations'
    got=$(check "$t")
    [ "$got" = "$want" ] && return 0
    printf 'self-test: expected\n%s\ngot\n%s\n' "$want" "$got"
    return 1
}

case ${1:-} in
--self-test) self_test && echo "the check finds what it should" ;;
*) check "${1:-$(dirname "$0")/..}" ;;
esac
