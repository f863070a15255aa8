#!/bin/sh
# ramp.sh BUILD: let a part of all new tasks go to a build of the workers, look whether they fail, then let all go there.
# If they do, new tasks go to the former build again. Tasks end on the build that they began on, either way.
set -eu
build=$1
deployment=${DEPLOYMENT:-everloop} part=${PERCENT:-5} seconds=${SECONDS_WATCHED:-600} most=${MOST_FAILED:-0}

versions() {
  command=$1
  shift
  everloop temporal worker deployment "$command" --deployment-name "$deployment" --build-id "$build" "$@"
}

# Temporal registers a build when its first worker polls for work.
tries=60
until versions describe-version >/dev/null 2>&1; do
  tries=$((tries - 1))
  [ "$tries" -gt 0 ] || { echo "no worker of build $build has asked for work within five minutes" >&2; exit 1; }
  sleep 5
done

# Before the first build is current no task is taken: there is nothing to compare it with.
if everloop temporal worker deployment describe --name "$deployment" --output json | grep -q '"currentVersionBuildID": "[^"]'; then
  versions set-ramping-version --percentage "$part" --yes
  sleep "$seconds"
  query="TemporalWorkerDeploymentVersion = '$deployment:$build' AND TaskState = 'failed'"
  failed=$(everloop temporal workflow count --query "$query" | sed -n 's/^Total: *//p')
  if [ "$failed" -gt "$most" ]; then
    versions set-ramping-version --delete --yes
    echo "$failed tasks of build $build have failed; new ones go to the former build" >&2
    exit 1
  fi
fi
versions set-current-version --yes
