#!/bin/sh
# Brings the two databases of Temporal up to the schema of this version; it may run again and again.
set -eu

sql_tool() {
  database=$1
  shift
  temporal-sql-tool --plugin postgres12 --endpoint postgresql --port 5432 --user temporal --database "$database" "$@"
}

for pair in temporal:temporal temporal_visibility:visibility; do
  database=${pair%%:*}
  schema=/etc/temporal/schema/postgresql/v12/${pair##*:}/versioned
  # Existing databases and schemas are left as they are.
  sql_tool "$database" create-database || true
  sql_tool "$database" setup-schema --version 0.0 || true
  sql_tool "$database" update-schema --schema-dir "$schema"
done
