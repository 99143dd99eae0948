#!/bin/sh
# Epilog for slurmd: puts back what prolog.sh changed, once no job on the node needs it any more. Root; see prolog.sh.
# A value that somebody else has changed since stays. It always ends with 0: an epilog that fails drains the node.
set -u
state=${CIUIC_TUNE_STATE:-/run/ciuic/tuning}
job=${SLURM_JOB_ID:-manual}

tell() { echo "ciuic epilog: $*" >&2; }

value() {
    text=$(cat "$1" 2>/dev/null) || return 1
    case $text in
    *\[*\]*) text=${text#*\[}; echo "${text%%\]*}" ;;
    *) echo "$text" ;;
    esac
}

[ -d "$state" ] || exit 0
exec 9>"$state/lock"
flock 9 || { tell "cannot lock $state"; exit 0; }
rm -f "$state/holders/$job"
[ -z "$(ls -A "$state/holders" 2>/dev/null)" ] || exit 0
[ -f "$state/saved" ] || exit 0

: >"$state/saved.new"
while IFS="$(printf '\t')" read -r file before applied; do
    now=$(value "$file") || { tell "cannot read $file"; continue; }
    [ "$now" = "$before" ] && continue
    if [ "$now" != "$applied" ]; then
        tell "$file was changed to $now by somebody else, $before not put back"
    elif ! echo "$before" 2>/dev/null >"$file"; then
        tell "cannot put $before back into $file"
        printf '%s\t%s\t%s\n' "$file" "$before" "$applied" >>"$state/saved.new"
    fi
done <"$state/saved"
if [ -s "$state/saved.new" ]; then mv "$state/saved.new" "$state/saved"; else rm -f "$state/saved.new" "$state/saved"; fi
exit 0
