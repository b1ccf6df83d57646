package oracle

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	batch1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ob "monoplane.dev/api/batch/v1"
	ourbatch "monoplane.dev/apiserver/kinds/batch"
	"monoplane.dev/rules/schedule"
)

// cronText is a schedule, mostly a valid one.
func cronText(r *rand.Rand) string {
	if r.IntN(8) == 0 {
		return pick(r, []string{"@hourly", "@daily", "@weekly", "@monthly", "@yearly", "@every 90s", "@every 1h30m",
			"@every 0s", "@never", "", "* * * *", "60 * * * *", "* * * * * *", "TZ=UTC * * * * *", "TZ=0", "CRON_TZ=",
			"CRON_TZ=Europe/Berlin 0 3 * * *", "0 0 30 2 *", "59 23 31 2 *", "0 0 31 4,6 *", "x * * * *", "*/0 * * * *",
			"5-1 * * * *", "0 0 29 2 *", "0 0 1 1 MON", "0 0 ? * SUN"})
	}
	field := func(low, high int) string {
		n := low + r.IntN(high-low+1)
		switch r.IntN(5) {
		case 0:
			return fmt.Sprint(n)
		case 1:
			return fmt.Sprint("*/", 1+r.IntN(high))
		case 2:
			return fmt.Sprint(n, "-", n+r.IntN(high-n+1), "/", 1+r.IntN(5))
		case 3:
			return fmt.Sprint(n, ",", low+r.IntN(high-low+1))
		default:
			return "*"
		}
	}
	return strings.Join([]string{field(0, 59), field(0, 23), field(1, 31), field(1, 12), field(0, 6)}, " ")
}

var timeZones = []string{"UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe",
	"Etc/GMT+12"}

// dueTime is what Kubernetes makes of a schedule at some time: the last time that is due, whether many were missed,
// why there is none, and how long it is to the next one.
type dueTime struct {
	Due  *time.Time
	Many bool
	None string
	Next time.Duration
}

// errorText is the text of an error, empty for none.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Of the same schedule the same time is due, and the same one is the next. spec: WORK-3
func TestSchedulesAreMetAlike(t *testing.T) {
	r := random(t)
	due, many, never := 0, 0, 0
	for range *count {
		text, zone := cronText(r), pick(r, timeZones)
		s, err := schedule.Parse(text, zone)
		if !schedule.NamesZone(text) {
			text = "TZ=" + zone + " " + text
		}
		if wrong := ask[string](t, "schedules", text); errorText(err) != wrong {
			t.Fatalf("schedule %q: %v, Kubernetes says %q", text, err, wrong)
		}
		if err != nil {
			continue
		}
		now := time.Unix(1_700_000_000+int64(r.IntN(100_000_000)), 0).UTC()
		ago := func() time.Time {
			return now.Add(-time.Duration(r.Int64N(int64(pick(r, []time.Duration{time.Minute, time.Hour, 24 * time.Hour,
				400 * 24 * time.Hour, 3650 * 24 * time.Hour}))))).Truncate(time.Second)
		}
		cj := &batch1.CronJob{}
		cj.CreationTimestamp = metav1.NewTime(ago())
		since := schedule.Since{Created: cj.CreationTimestamp.Time}
		if r.IntN(2) == 0 {
			since.Last = ago()
			if r.IntN(10) == 0 {
				since.Last = now.Add(time.Hour) // the clock was set back
			}
			cj.Status.LastScheduleTime = ptr(metav1.NewTime(since.Last))
		}
		if r.IntN(3) == 0 {
			seconds := int64(r.IntN(100_000))
			cj.Spec.StartingDeadlineSeconds = &seconds
			since.Deadline = ptr(time.Duration(seconds) * time.Second)
		}
		theirs := ask[dueTime](t, "due-times", cj, now, text)
		want := theirs.Due
		at, tooMany, err := s.Due(since, now)
		switch {
		case errorText(err) != theirs.None:
			t.Fatalf("%q at %s since %+v: %v, Kubernetes says %q", text, now, since, err, theirs.None)
		case err != nil:
			never++
			continue
		case want == nil && !at.IsZero() || want != nil && !at.Equal(*want):
			t.Fatalf("%q at %s since %+v: %s is due, Kubernetes says %v", text, now, since, at, want)
		case want != nil && tooMany != theirs.Many:
			t.Fatalf("%q at %s since %+v: too many %t, Kubernetes says %t", text, now, since, tooMany, theirs.Many)
		}
		if want != nil {
			due++
		}
		if tooMany {
			many++
		}
		if got, want := s.Next(since, now), theirs.Next; got != want && want > 0 {
			t.Fatalf("%q at %s since %+v: the next in %s, Kubernetes says %s", text, now, since, got, want)
		}
	}
	if *count >= 1000 && (due == 0 || many == 0 || never == 0) {
		t.Errorf("%d were due, %d had missed many times, %d had none", due, many, never)
	}
}

// A year of times in timeZones that change their clocks is met as Kubernetes meets it: looked at whenever each says.
// spec: WORK-3
func TestAYearIsMetAlike(t *testing.T) {
	for _, zone := range []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe"} {
		for _, text := range []string{"30 2 * * *", "0 * * * *", "15 1-3 * * *", "*/20 0-4 * * SUN", "@daily", "@every 7h"} {
			s, err := schedule.Parse(text, zone)
			if err != nil {
				t.Fatal(err)
			}
			now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			end := now.AddDate(1, 0, 0)
			theirs := ask[[]time.Duration](t, "due-times-of-a-year", "TZ="+zone+" "+text, now, end)
			since, want, met := schedule.Since{Created: now}, now, 0
			for ; now.Before(end); now = now.Add(s.Next(since, now)) {
				at, _, err := s.Due(since, now)
				if err != nil {
					t.Fatal(err)
				}
				if at.IsZero() {
					continue
				}
				if met < len(theirs) {
					want = want.Add(theirs[met])
				}
				if met >= len(theirs) || !at.Equal(want) {
					t.Fatalf("%q in %s: time %d of %d is %s, Kubernetes says %s", text, zone, met, len(theirs), at, want)
				}
				met++
				since.Last = at
			}
			if met < 150 || met != len(theirs) {
				t.Errorf("%q in %s was met %d times, Kubernetes says %d", text, zone, met, len(theirs))
			}
		}
	}
}

// spec: OBJ-3, WORK-3
func TestCronJobsAreJudgedAlike(t *testing.T) {
	r := random(t)
	bad := 0
	for i := 0; i < *count && bad < 25; i++ {
		template, altered, what := podTemplate(r)
		template.Spec.RestartPolicy, altered.Spec.RestartPolicy = "Never", "Never"
		if r.IntN(8) == 0 {
			altered.Spec.RestartPolicy = "Always"
		}
		m := meta(pick(r, []string{"c", "c", "c", strings.Repeat("c", 52), strings.Repeat("c", 53), "C"}))
		m.ResourceVersion = "1"
		k := &batch1.CronJob{ObjectMeta: m, Spec: batch1.CronJobSpec{
			Schedule: cronText(r), ConcurrencyPolicy: pick(r, []batch1.ConcurrencyPolicy{"", "Allow", "Forbid", "Replace",
				"X"}),
			SuccessfulJobsHistoryLimit: someCount(r), FailedJobsHistoryLimit: someCount(r),
			JobTemplate: batch1.JobTemplateSpec{Spec: batch1.JobSpec{Template: altered, Parallelism: someCount(r)}},
		}}
		if r.IntN(2) == 0 {
			k.Spec.TimeZone = ptr(pick(r, append([]string{"", "Local", "local", "Mars/Phobos", "../etc/passwd", "a//b", "-a",
				"Europe/Berlin/"}, timeZones...)))
		}
		if r.IntN(3) == 0 {
			k.Spec.StartingDeadlineSeconds = ptr(int64(r.IntN(9) - 2))
		}
		if r.IntN(6) == 0 {
			k.Spec.JobTemplate.Spec.ManualSelector = ptr(r.IntN(2) == 0)
			k.Spec.JobTemplate.Spec.Selector = selector(r)
		}
		old := k.DeepCopy()
		old.Spec.Schedule = pick(r, []string{"* * * * *", "TZ=UTC * * * * *", k.Spec.Schedule})
		old.Spec.JobTemplate.Spec.Template = template
		if r.IntN(2) == 0 {
			old.Spec.TimeZone = nil
		}
		o, before := converted(t, k, &ob.CronJob{}), converted(t, old, &ob.CronJob{})
		ourbatch.DefaultCronJob(o)
		ourbatch.DefaultCronJob(before)
		keep(o.Metadata, before.Metadata)
		what = append(what, k.Spec.Schedule, m.Name)
		if judged(t, what, ask[verdict](t, "cronjobs", k, old),
			ourbatch.ValidateCronJob(o), ourbatch.ValidateCronJobUpdate(o, before)) {
			bad++
		}
	}
}
