#!/usr/bin/env bash
# Software: robfig/cron 3.0.1 (the parser of Kubernetes' CronJobs)
# Guess: as cron of Debian does, a job at 02:30 runs once on each day: when the clock is put forward over 02:30 it
#   runs at once after, and when 01:30 comes twice it runs the first time only.
# Behaviour: a time of day that the change skips is left out, so a daily job does not run at all on that day, and one
#   that comes twice runs twice, an hour apart. A CronJob with spec.timeZone meets both, one day each a year. A job
#   of every hour is as expected.
# Seen:
#   30 2 * * * from 7 March: 7 Mar 02:30 EST, 9 Mar 02:30 EDT, 10 Mar 02:30 EDT
#   30 1 * * * from 31 October: 31 Oct 01:30 EDT, 1 Nov 01:30 EDT, 1 Nov 01:30 EST
#   0 * * * * from 8 March, 1:30: 8 Mar 03:00 EDT, 8 Mar 04:00 EDT, 8 Mar 05:00 EDT
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
	_ "time/tzdata"

	"github.com/robfig/cron/v3"
)

var newYork = must(time.LoadLocation("America/New_York"))

func main() {
	show("30 2 * * *", "7 March", time.Date(2026, 3, 7, 0, 0, 0, 0, newYork))
	show("30 1 * * *", "31 October", time.Date(2026, 10, 31, 0, 0, 0, 0, newYork))
	show("0 * * * *", "8 March, 1:30", time.Date(2026, 3, 8, 1, 30, 0, 0, newYork))
}

func show(spec, from string, at time.Time) {
	schedule := must(cron.ParseStandard(spec))
	var runs []string
	for range 3 {
		at = schedule.Next(at)
		runs = append(runs, at.Format("2 Jan 15:04 MST"))
	}
	fmt.Printf("%s from %s: %s\n", spec, from, strings.Join(runs, ", "))
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
EOF
go run -mod=mod . >seen
diff expected seen && echo "Still so."
