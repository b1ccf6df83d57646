#!/usr/bin/env bash
# Software: robfig/cron 3.0.1 (the parser of Kubernetes' CronJobs)
# Guess: a day of the month that begins with a star, such as */2, does not count as a restriction (to the crontab(5)
#   of cronie only fields without a star do), so "0 0 */2 * 1" runs on Mondays that are odd days.
# Behaviour: every step but 1 makes it a restriction like 1-31/2, and of two restrictions one suffices: the job runs
#   on all odd days and on all Mondays. An entry moved from a crontab to a CronJob runs many times more often. */1 is
#   still a star.
# Seen:
#   0 0 */2 * 1: Wed 3, Fri 5, Sun 7, Mon 8, Tue 9, Thu 11
#   0 0 1-31/2 * 1: Wed 3, Fri 5, Sun 7, Mon 8, Tue 9, Thu 11
#   0 0 */1 * 1: Mon 8, Mon 15, Mon 22, Mon 29, Mon 6, Mon 13
set -euo pipefail
sed -n '/^# /s/^# //p' "$0"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
sed -n '/^# Seen:/,/^set/s/^#   //p' "$0" >"$dir/expected"
cd "$dir"
export GOWORK=off

cat >go.mod <<'EOF'
module finding

go 1.26

require github.com/robfig/cron/v3 v3.0.1
EOF
cat >main.go <<'EOF'
package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

func main() {
	for _, spec := range []string{"0 0 */2 * 1", "0 0 1-31/2 * 1", "0 0 */1 * 1"} {
		schedule, err := cron.ParseStandard(spec)
		if err != nil {
			panic(err)
		}
		at := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC) // A Monday, and odd.
		var runs []string
		for range 6 {
			at = schedule.Next(at)
			runs = append(runs, at.Format("Mon 2"))
		}
		fmt.Printf("%s: %s\n", spec, strings.Join(runs, ", "))
	}
}
EOF
go run -mod=mod . >seen
diff expected seen && echo "Still so."
