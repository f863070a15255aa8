#!/bin/sh
# Makes the namespace and its search attributes; it may run again and again.
# TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, and RETENTION: how long the histories of ended tasks are kept.
set -eu

tries=0
until temporal operator cluster health; do
  tries=$((tries + 1))
  if [ "$tries" -ge 60 ]; then
    echo "Temporal at $TEMPORAL_ADDRESS is not healthy; see its log" >&2
    exit 1
  fi
  sleep 2
done

if ! temporal operator namespace describe --namespace "$TEMPORAL_NAMESPACE" >/dev/null 2>&1; then
  temporal operator namespace create --namespace "$TEMPORAL_NAMESPACE" --retention "$RETENTION"
fi

# A namespace that was just made is not known to all of Temporal at once.
tries=0
until temporal operator search-attribute create --namespace "$TEMPORAL_NAMESPACE" \
  --name AgentId --name ContextId --name Owner --name TaskState --name TaskVersion \
  --type Keyword --type Keyword --type Keyword --type Keyword --type Int; do
  tries=$((tries + 1))
  if [ "$tries" -ge 30 ]; then
    echo "the search attributes of $TEMPORAL_NAMESPACE could not be made" >&2
    exit 1
  fi
  sleep 1
done
