package json

import "time"

const (
	micro = "2006-01-02T15:04:05.000000Z07:00"
	// noTime is the zero time.Time in seconds since 1970; Kubernetes writes it as null.
	noTime = -62135596800
	// minTime and maxTime are the first and the last second that RFC 3339 has, in the years 0 and 9999.
	minTime = -62167219200
	maxTime = 253402300799
)

// ZeroTime says whether a Time or MicroTime means "no time", which JSON writes as null.
func ZeroTime(seconds int64, nanos int32) bool {
	return nanos == 0 && (seconds == 0 || seconds == noTime)
}

// AppendTime appends RFC 3339 text in UTC with whole seconds, or null. Times outside the years 0 to 9999, which
// only protobuf clients can send, become the first or the last second of these.
func AppendTime(b []byte, seconds int64, nanos int32) []byte {
	if ZeroTime(seconds, nanos) {
		return append(b, "null"...)
	}
	b = append(b, '"')
	b = inRange(seconds, nanos).AppendFormat(b, time.RFC3339)
	return append(b, '"')
}

// AppendMicroTime appends RFC 3339 text in UTC with six fraction digits, or null. Times are limited as by
// AppendTime.
func AppendMicroTime(b []byte, seconds int64, nanos int32) []byte {
	if ZeroTime(seconds, nanos) {
		return append(b, "null"...)
	}
	b = append(b, '"')
	t := inRange(seconds, nanos)
	b = t.AppendFormat(b, time.RFC3339)
	b[len(b)-1] = '.' // in place of the Z
	for unit := 100_000; unit > 0; unit /= 10 {
		b = append(b, '0'+byte(t.Nanosecond()/1000/unit%10))
	}
	return append(b, `Z"`...)
}

// inRange returns the nearest time that RFC 3339 can write.
func inRange(seconds int64, nanos int32) time.Time {
	if seconds < minTime || seconds > maxTime || nanos < 0 || nanos > 999999999 {
		seconds, nanos = min(max(seconds, minTime), maxTime), 0
	}
	return time.Unix(seconds, int64(nanos)).UTC()
}

// AppendDuration appends a Go duration such as "1m30s".
func AppendDuration(b []byte, nanoseconds int64) []byte {
	return AppendString(b, time.Duration(nanoseconds).String())
}

// Time reads an RFC 3339 time; fractions of a second are dropped. Null is no time.
func (d *Decoder) Time(seconds *int64, nanos *int32) {
	d.time(time.RFC3339, time.Second, seconds, nanos)
}

// MicroTime reads an RFC 3339 time with exactly six fraction digits. Null is no time.
func (d *Decoder) MicroTime(seconds *int64, nanos *int32) {
	d.time(micro, time.Microsecond, seconds, nanos)
}

func (d *Decoder) time(layout string, unit time.Duration, seconds *int64, nanos *int32) {
	*seconds, *nanos = 0, 0
	if d.Null() {
		return
	}
	expected := "a string with an RFC 3339 time"
	if unit == time.Microsecond {
		expected += " with six fraction digits"
	}
	if d.peek() != '"' {
		d.mismatch(expected)
		return
	}
	at := d.pos
	s, ok := d.scanString()
	if !ok {
		return
	}
	if layout == micro && len(s) == len("2006-01-02T15:04:05.000000Z") && s[19] == '.' && s[26] == 'Z' {
		layout = time.RFC3339 // reads any fraction, and faster
	}
	t, err := time.Parse(layout, string(s))
	if err != nil {
		d.pos = at
		d.mismatch(expected)
		return
	}
	if t.Unix() < minTime || t.Unix() > maxTime {
		d.wrong("expected a time within the years 0 to 9999 of UTC, found %s", short(s))
		return
	}
	if !t.IsZero() {
		*seconds, *nanos = TimeParts(t, unit)
	}
}

// TimeParts returns the protobuf form of t, which is not zero, cut to whole units of one second or less. The
// instant 1970-01-01T00:00:00Z, for which protobuf's zeros leave no room, gets one nanosecond more; JSON
// never shows it.
func TimeParts(t time.Time, unit time.Duration) (seconds int64, nanos int32) {
	seconds, nanos = t.Unix(), int32(t.Nanosecond()/int(unit)*int(unit))
	if seconds == 0 && nanos == 0 {
		nanos = 1
	}
	return seconds, nanos
}

// Duration reads a Go duration such as "1m30s" into nanoseconds; null is 0.
func (d *Decoder) Duration(nanoseconds *int64) {
	*nanoseconds = 0
	if d.Null() {
		return
	}
	const expected = "a string with a duration such as \"1m30s\""
	if d.peek() != '"' {
		d.mismatch(expected)
		return
	}
	at := d.pos
	s, ok := d.scanString()
	if !ok {
		return
	}
	v, err := time.ParseDuration(string(s))
	if err != nil {
		d.pos = at
		d.mismatch(expected)
		return
	}
	*nanoseconds = int64(v)
}
