package schedule_test

import (
	"errors"
	"testing"
	"time"

	"monoplane.dev/rules/schedule"
)

// What is due is the newest time that was not met, within the deadline. Clocks that are put forward leave out times
// of that night. spec: WORK-3
func TestDue(t *testing.T) {
	day := func(month time.Month, day, hour, minute int) time.Time {
		return time.Date(2026, month, day, hour, minute, 0, 0, time.UTC)
	}
	hour := time.Hour
	for _, tt := range []struct {
		name, text, zone string
		since            schedule.Since
		now, want        time.Time
		many             bool
	}{
		{"not yet", "30 6 * * *", "UTC", schedule.Since{Created: day(5, 1, 7, 0)}, day(5, 2, 6, 29), time.Time{}, false},
		{"now", "30 6 * * *", "UTC", schedule.Since{Created: day(5, 1, 7, 0)}, day(5, 2, 6, 30), day(5, 2, 6, 30), false},
		{"met", "30 6 * * *", "UTC", schedule.Since{Last: day(5, 2, 6, 30)}, day(5, 2, 6, 31), time.Time{}, false},
		{"several", "0 * * * *", "UTC", schedule.Since{Last: day(5, 1, 0, 0)}, day(5, 3, 5, 7), day(5, 3, 5, 0), false},
		{"too many", "* * * * *", "UTC", schedule.Since{Last: day(5, 1, 0, 0)}, day(5, 3, 5, 7), day(5, 3, 5, 7), true},
		{"too late", "0 6 * * *", "UTC", schedule.Since{Last: day(5, 1, 6, 0), Deadline: &hour}, day(5, 2, 7, 1),
			time.Time{}, false},
		{"in a zone", "30 6 * * *", "Europe/Berlin", schedule.Since{Last: day(5, 1, 4, 30)}, day(5, 2, 4, 30),
			day(5, 2, 4, 30), false},
		{"no such hour", "30 2 * * *", "Europe/Berlin", schedule.Since{Last: day(3, 28, 1, 30)}, day(3, 29, 12, 0),
			time.Time{}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := schedule.Parse(tt.text, tt.zone)
			if err != nil {
				t.Fatal(err)
			}
			at, many, err := s.Due(tt.since, tt.now)
			if err != nil || !at.Equal(tt.want) || many != tt.many {
				t.Errorf("%s is due, too many %t, %v; want %s, %t", at, many, err, tt.want, tt.many)
			}
		})
	}
}

func TestNever(t *testing.T) {
	s, err := schedule.Parse("0 0 30 2 *", "")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1_800_000_000, 0)
	if at, _, err := s.Due(schedule.Since{Created: now.Add(-time.Hour)}, now); !errors.Is(err, schedule.ErrNever) {
		t.Errorf("%s is due, %v", at, err)
	}
}

func TestWrongZone(t *testing.T) {
	for name, wrong := range map[string]bool{
		"UTC": false, "Europe/Berlin": false, "Etc/GMT+12": false, "": true, "Local": true, "../x": true, "Mars/Phobos": true,
	} {
		if got := schedule.WrongZone(name); (len(got) > 0) != wrong {
			t.Errorf("%q: %q", name, got)
		}
	}
}
