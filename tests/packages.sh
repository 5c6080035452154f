# packages.sh - the Debian packages that dtrc needs, in one place; sourced by tests/run.sh and
# models/quickstart.sh. Package names are those of Debian 12.

# To build dtrc, and for dtrc to build the programs it generates.
packages_build="gcc libc6-dev make cmake ninja-build pkg-config libdnnl-dev libonnx-dev libprotobuf-c-dev
  protobuf-c-compiler protobuf-compiler libcjson-dev zlib1g-dev libmd-dev libglpk-dev"
# For the Python parts of the tests and of models/ (always Debian's own /usr/bin/python3).
packages_python="python3 python3-numpy python3-onnx"
packages_test="libonnx-testdata clang-format glpk-utils coinor-cbc"
# To open the pages that dtrc writes.
packages_browser="chromium"
# For the fuzz targets (libFuzzer comes with clang's runtime).
packages_fuzz="clang libclang-rt-dev libomp-dev"

# need_packages NAME...: installs what is missing when root, else lists it and fails.
need_packages() {
    missing=
    for package in "$@"; do
        case $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) in
        installed) ;;
        *) missing="$missing $package" ;;
        esac
    done
    [ -z "$missing" ] && return 0
    if [ "$(id -u)" -ne 0 ]; then
        echo "missing Debian packages; install them with" >&2
        echo "    apt-get install$missing" >&2
        return 1
    fi
    echo "installing:$missing"
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive apt-get -q -y update >/dev/null &&
        DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends $missing >/dev/null
}
