#!/bin/sh
# Build etcd, kube-apiserver and kube-scheduler for tests/run/test_kube_server.py and `python -m bench kubernetes`, once:
# build.sh [FOLDER].  Needs Go 1.26 and its module proxy, 5 GB of disk, 4 GB of memory and 9 minutes of CPU time.
set -eu
kubernetes=36.3 etcd=3.7.3
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-${FLOWSCHED_KUBE:-${XDG_CACHE_HOME:-$HOME/.cache}/flowsched/kube-1.$kubernetes}}
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export CGO_ENABLED=0 GOFLAGS="-mod=mod -trimpath" GOTOOLCHAIN=local

build() { # build NAME: the program of a folder here, in the module of the current folder
    [ ! -x "$out/$1" ] || return 0
    cp -r "$here/$1" .
    go mod tidy
    go build -ldflags "-s -w${2:-}" -o "$work/$1.new" "./$1"
    mv "$work/$1.new" "$out/$1" # whole or not at all
}

[ -x "$out/etcd" ] || (
    mkdir "$work/e" && cd "$work/e" && go mod init e
    go mod edit -require "go.etcd.io/etcd/server/v3@v$etcd"
    build etcd
)
[ -x "$out/apiserver" ] && [ -x "$out/scheduler" ] && [ -d "$out/scheduler_perf" ] || (
    mkdir "$work/a" && cd "$work/a" && go mod init a
    go mod edit -require "k8s.io/kubernetes@v1.$kubernetes" -require "k8s.io/component-base@v0.$kubernetes"
    # Kubernetes requires its own parts as v0.0.0 and replaces them by folders, which counts in its own module only.
    for part in $(go mod download -json "k8s.io/kubernetes@v1.$kubernetes" | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p' |
        xargs sed -n 's|^\t\(k8s.io/[a-z-]*\) => ./staging/.*|\1|p'); do
        go mod edit -replace "$part=$part@v0.$kubernetes"
    done
    version=k8s.io/component-base/version
    versions=" -X $version.gitVersion=v1.$kubernetes -X $version.gitMajor=1 -X $version.gitMinor=${kubernetes%.*}"
    build apiserver "$versions"
    build scheduler "$versions"
    # The workloads of scheduler_perf, which the benchmark reads.
    source=$(go mod download -json "k8s.io/kubernetes@v1.$kubernetes" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
    mkdir "$work/scheduler_perf"
    cp -r "$source"/test/integration/scheduler_perf/affinity "$source"/test/integration/scheduler_perf/misc \
        "$source"/test/integration/scheduler_perf/templates "$source"/test/integration/scheduler_perf/topology_spreading \
        "$work/scheduler_perf"
    chmod -R u+w "$work/scheduler_perf"
    mv "$work/scheduler_perf" "$out/scheduler_perf"
)
echo "$out"
