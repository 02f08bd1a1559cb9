"""The line for /bin/sh that starts a job in a container.

Its arguments: engine, image, number of GPUs, limit of RAM in bytes (0: none), whether to mount the home
folder, files to mount (separated by colons), whether the command is a shell, the number of words for
variables, these words, the words of the user for the engine, the image, the command.

Exit codes are those of podman and docker: 125 if there is no container, 126 and 127 for the command.
"""

ENTER = r"""
fail() { printf 'stoker: %s\n' "$1" >&2; exit 125; }
engine=$1 image=$2 gpus=$3 mem=$4 home=$5 mounts=$6 is_shell=$7 names=$8; shift 8
if [ "$engine" = auto ]; then
    for each in podman docker apptainer; do
        if command -v "$each" >/dev/null 2>&1; then engine=$each; break; fi
    done
    [ "$engine" != auto ] || fail "no container engine here: install podman, docker or apptainer"
fi
command -v "$engine" >/dev/null 2>&1 \
    || fail "no $engine here, or not in PATH: install it, or choose another (stoker config container.engine)"
name=stoker-$(printf %s "${STOKER_COOKIE##*/}" | tr -c A-Za-z0-9_.- -)
folder=$(pwd -P)
set -f
all=$folder:${STOKER_SUBMIT_DIR-}:${STOKER_CHECKPOINT_DIR-}:${STOKER_RUN_DIR-}:$mounts
[ "$home" = no ] || all=$all:$HOME
case $folder in *[,:]*) fail "cannot mount a folder with a comma or colon in its name: $folder" ;; esac
mount_each() {
    seen=:
    IFS=:
    for each in $all; do
        [ -n "$each" ] && [ -e "$each" ] || continue
        case $seen in *:"$each":*) continue;; esac
        seen=$seen$each:
    done
    unset IFS
}
mount_each
# A remover ends with its container, and is no process of the job. That of podman waits until the client and
# the monitor of the container have closed a pipe. That of docker watches the client, because the container is
# no child of it: a stopped client pauses the container.
remove_after_pipe() {
    pipe=${XDG_RUNTIME_DIR:-/tmp}/$name.$$
    (umask 077 && mkfifo "$pipe") || fail "cannot make a pipe in ${pipe%/*}"
    exec 3<>"$pipe" 4>"$pipe" 5<"$pipe"
    rm -f "$pipe"
    exec 3>&-
    # If client, monitor and container were killed at once, only the second removal succeeds.
    STOKER_PART=remover setsid /bin/sh -c '
        read -r _
        for try in 1 2 3 4 5; do podman rm --force --ignore --time 0 "$0" && exit; sleep 1; done' \
        "$name" <&5 >/dev/null 2>&1 4>&- 5<&- &
    exec 5<&-
}
remove_after_client() {
    STOKER_PART=remover setsid /bin/sh -c '
        paused=
        while read -r _ _ state _ <"/proc/$1/stat" && [ "$state" != Z ]; do
            if [ "$state" = T ] && [ -z "$paused" ]; then docker pause "$0" && paused=yes; fi
            if [ "$state" != T ] && [ -n "$paused" ]; then docker unpause "$0" && paused=; fi
            sleep 1
        done
        exec docker rm --force "$0"' "$name" $$ </dev/null >/dev/null 2>&1 &
}
case $engine in
podman|docker)
    if [ "$gpus" -gt 0 ] && [ -n "${ROCR_VISIBLE_DEVICES-}" ]; then
        set -- --device /dev/kfd --device /dev/dri "$@"
    elif [ "$gpus" -gt 0 ]; then
        IFS=,
        for each in ${STOKER_GPU_UUIDS:-${CUDA_VISIBLE_DEVICES-}}; do
            [ "$each" = NoDevFiles ] || [ "$each" = -1 ] || set -- --device "nvidia.com/gpu=$each" "$@"
        done
        unset IFS
        [ -z "${STOKER_GPU_UUIDS-}" ] || export CUDA_VISIBLE_DEVICES="$STOKER_GPU_UUIDS"
    fi
    IFS=:
    for each in $seen; do [ -z "$each" ] || set -- -v "$each:$each" "$@"; done
    unset IFS
    if [ "$is_shell" = yes ]; then
        init=$engine
        for each in /usr/libexec/podman/catatonit /usr/bin/catatonit /usr/lib/podman/catatonit; do
            [ ! -x "$each" ] || init=docker
        done
        [ "$init" = podman ] || set -- --init "$@"
    fi
    [ ! -t 0 ] || set -- -i -t "$@"
    # Stoker watches the RAM of its own descendants, and a container of docker is none.
    [ "$engine" = podman ] || [ "$mem" = 0 ] || set -- --memory "$mem" "$@"
    set -- run --name "$name" --label stoker=job --network=host --ipc=host -w "$folder" "$@"
    ;;
esac
case $engine in
podman)
    remove_after_pipe
    exec podman "$@" ;;
docker)
    remove_after_client
    exec docker "$@" ;;
apptainer)
    shift "$names"
    binds=
    IFS=:
    for each in $seen; do [ -z "$each" ] || binds=$binds,$each; done
    unset IFS
    source=$image
    case $image in /*|*://*) ;; *) source=docker://$image ;; esac
    for word do
        shift
        if [ "$word" = "$image" ] && [ -n "$source" ]; then
            set -- "$@" "$source" /bin/sh -c 'exec "$@"' sh
            source=
        else
            set -- "$@" "$word"
        fi
    done
    [ "$home" = yes ] || set -- --no-home "$@"
    if [ "$gpus" -gt 0 ] && [ -n "${ROCR_VISIBLE_DEVICES-}" ]; then
        set -- --rocm "$@"
    elif [ "$gpus" -gt 0 ]; then
        set -- --nv "$@"
    fi
    exec apptainer exec --bind "${binds#,}" --pwd "$folder" "$@" ;;
bwrap)
    [ -d "$image" ] || fail "image $image: no such folder (bwrap needs one with a whole system)"
    shift "$names"
    IFS=:
    for each in $seen; do [ -z "$each" ] || set -- --bind "$each" "$each" "$@"; done
    unset IFS
    set -- --ro-bind-try /sys /sys --bind /tmp /tmp --ro-bind-try /etc/resolv.conf /etc/resolv.conf "$@"
    exec bwrap --bind "$image" / --dev-bind /dev /dev --bind /proc /proc "$@" ;;
esac
fail "container engine $engine is not known: podman, docker, apptainer or bwrap"
"""
