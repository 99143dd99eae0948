#!/bin/sh
# Prolog for slurmd: sets the node for training before a job's first step. Root. In slurm.conf:
#   Prolog=/etc/slurm/ciuic/prolog.sh
#   Epilog=/etc/slurm/ciuic/epilog.sh
#   PrologFlags=Alloc
# What is changed is written down first (see apply.py for the format), so that the epilog puts it back whatever
# happens in between, this script's own death included. It always ends with 0: a prolog that fails drains the node.
#
#   CIUIC_TUNE             what is set, default "thp"; also known: numa swap governor
#   CIUIC_TUNE_PARTITIONS  only jobs of these partitions (blanks between), default all
#   CIUIC_TUNE_STATE       default /run/ciuic/tuning
set -u
state=${CIUIC_TUNE_STATE:-/run/ciuic/tuning}
sys=${CIUIC_TUNE_SYS:-/sys}
proc=${CIUIC_TUNE_PROC:-/proc}
job=${SLURM_JOB_ID:-manual}
tab=$(printf '\t')

case " ${CIUIC_TUNE_PARTITIONS:-${SLURM_JOB_PARTITION:-}} " in
*" ${SLURM_JOB_PARTITION:-} "*) ;;
*) exit 0 ;;
esac

tell() { echo "ciuic prolog: $*" >&2; }

# The value in force: of "always [madvise] never" the one in brackets.
value() {
    text=$(cat "$1" 2>/dev/null) || return 1
    case $text in
    *\[*\]*) text=${text#*\[}; echo "${text%%\]*}" ;;
    *) echo "$text" ;;
    esac
}

set_to() { # VALUE FILE
    now=$(value "$2") || return 0
    [ "$now" = "$1" ] && return 0
    if ! grep -q "^$2$tab" "$state/saved" 2>/dev/null; then
        { cat "$state/saved" 2>/dev/null; printf '%s\t%s\t%s\n' "$2" "$now" "$1"; } >"$state/saved.new" &&
            mv "$state/saved.new" "$state/saved" || { tell "cannot remember $2, left alone"; return 0; }
    fi
    echo "$1" 2>/dev/null >"$2" || tell "cannot set $2"
}

mkdir -p "$state/holders" || { tell "cannot write $state, nothing set"; exit 0; }
exec 9>"$state/lock"
flock 9 || { tell "cannot lock $state, nothing set"; exit 0; }
: >"$state/holders/$job"

for what in ${CIUIC_TUNE:-thp}; do
    case $what in
    thp)
        thp=$sys/kernel/mm/transparent_hugepage
        for file in "$thp/enabled" "$thp/defrag"; do set_to never "$file"; done
        # Sizes with a switch of their own: "inherit" follows the one above.
        for file in "$thp"/hugepages-*kB/enabled; do
            case $(value "$file") in inherit | never | "") ;; *) set_to never "$file" ;; esac
        done
        ;;
    numa) for file in "$proc/sys/kernel/numa_balancing" "$proc/sys/vm/zone_reclaim_mode"; do set_to 0 "$file"; done ;;
    swap) set_to 10 "$proc/sys/vm/swappiness" ;;
    governor) for file in "$sys"/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor; do set_to performance "$file"; done ;;
    *) tell "CIUIC_TUNE: $what is not known" ;;
    esac
done
exit 0
