#!/bin/sh
# The development server, with a file that survives a restart.
exec temporal server start-dev --headless --ip 0.0.0.0 --port 7233 --db-filename /var/lib/temporal/temporal.db \
  --log-level warn
