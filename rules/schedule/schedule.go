// Package schedule reads the schedules of CronJobs, and says which of their times is due. Validation and the
// controller read them with the same code.
//
// It guarantees the answers of Kubernetes, whose library reads the schedules and whose own code test/oracle compares
// over random ones. It has no clock: callers say what time it is.
//
// Time zones are those of the system's database, which is kept up to date with the system; where there is none, the
// one that Go brings along is used.
package schedule

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	_ "time/tzdata" // for systems without a database of time zones

	"github.com/robfig/cron/v3"
)

// Schedule is a series of times.
type Schedule struct{ times cron.Schedule }

// Parse reads a schedule in a time zone; an empty zone is that of the system.
func Parse(text, zone string) (s Schedule, err error) {
	// The library panics on some texts that begin with a zone and end there.
	defer func() {
		if r := recover(); r != nil {
			s, err = Schedule{}, fmt.Errorf("invalid schedule format: %v", r)
		}
	}()
	if zone != "" && !NamesZone(text) {
		text = "TZ=" + zone + " " + text
	}
	times, err := cron.ParseStandard(text)
	if err != nil {
		return Schedule{}, err
	}
	return Schedule{times}, nil
}

// NamesZone says whether a schedule names a time zone itself, as was allowed once.
func NamesZone(text string) bool { return strings.Contains(text, "TZ") }

// zonePart is what may stand between two slashes of the name of a time zone.
var zonePart = regexp.MustCompile(`^[A-Za-z\.\-_0-9+]{1,14}$`)

// WrongZone says what is wrong with the name of a time zone.
func WrongZone(name string) []string {
	if name == "" {
		return []string{"timeZone must be nil or non-empty string"}
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "." || part == ".." || strings.HasPrefix(part, "-") || !zonePart.MatchString(part) {
			return []string{"unknown time zone " + name}
		}
	}
	var wrong []string
	if strings.EqualFold(name, "Local") {
		wrong = append(wrong,
			"timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones")
	}
	if _, err := time.LoadLocation(name); err != nil {
		wrong = append(wrong, err.Error())
	}
	return wrong
}

// Since is from when on the times of a schedule count.
type Since struct {
	// Created is when the schedule was written down, Last the time that was met last; zero for none.
	Created, Last time.Time
	// Changed is when another schedule took the place of an older one; zero for never. What it would have met before
	// that was never promised.
	Changed time.Time
	// Deadline is how long after its time something may still be done; nil for ever.
	Deadline *time.Duration
}

// begin returns the time after which times count.
func (s Since) begin(now time.Time, deadline bool) time.Time {
	t := s.Created
	if !s.Last.IsZero() {
		t = s.Last
	}
	if s.Changed.After(t) {
		t = s.Changed
	}
	if deadline && s.Deadline != nil {
		if earliest := now.Add(-*s.Deadline); earliest.After(t) {
			return earliest
		}
	}
	return t
}

// tooMany is more missed times than anybody would miss without knowing.
const tooMany = 100

// ErrNever says that a schedule has no times, such as one of 30 February.
var ErrNever = errors.New("time difference between two schedules is less than 1 second")

// Due returns the newest time that has come and was not met; zero for none. Many is true when more than 100 were
// missed.
func (s Schedule) Due(since Since, now time.Time) (at time.Time, many bool, err error) {
	at, missed, err := s.newest(since.begin(now, true), now)
	if err != nil || at.IsZero() {
		return time.Time{}, false, err
	}
	return at, missed > tooMany, nil
}

// slack is how long after its time a time is looked for: clocks of several machines are not quite the same.
const slack = 100 * time.Millisecond

// far is how long nothing is looked for after which a schedule has no times for years.
const far = 24 * time.Hour

// Next returns how long it takes until the next time has come.
func (s Schedule) Next(since Since, now time.Time) time.Duration {
	begin := since.begin(now, false)
	at, missed, err := s.newest(begin, now)
	switch {
	case err != nil || at.IsZero() && missed > 0:
		at = now
	case at.IsZero():
		at = begin
	}
	next := s.times.Next(at)
	if next.IsZero() {
		return far
	}
	return next.Add(slack).Sub(now)
}

// newest returns the newest time after begin that has come, zero for none, and about how many have: they are not
// counted one by one, since there may be millions after a long sleep.
func (s Schedule) newest(begin, now time.Time) (at time.Time, missed int64, err error) {
	first := s.times.Next(begin)
	second := s.times.Next(first)
	switch {
	case now.Before(first):
		return time.Time{}, 0, nil
	case now.Before(second):
		return first, 0, nil
	}
	apart := int64(second.Sub(first).Round(time.Second).Seconds())
	if apart < 1 {
		return time.Time{}, 0, ErrNever
	}
	missed = int64(now.Sub(first).Seconds())/apart + 1
	// The times need not be evenly apart: from one before the last of those that would be, each is looked at.
	before := first.Add(time.Duration((missed-2)*apart) * time.Second)
	for t := s.times.Next(before); !t.After(now); t = s.times.Next(t) {
		if t.IsZero() {
			break
		}
		at = t
	}
	return at, missed, nil
}
