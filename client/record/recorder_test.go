package record_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/test/apitest"
	"monoplane.dev/client/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func run(t *testing.T, f func(t *testing.T, s *apitest.Server, r *record.Recorder, list func() []*corev1.Event)) {
	synctest.Test(t, func(t *testing.T) {
		s := apitest.Start(t)
		s.Namespaces(t, "ns")
		c := s.Admin()
		r := record.New(record.Config{Events: c.Events, Controller: "tester"})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			_ = r.Run(ctx)
			close(done)
		}()
		f(t, s, r, func() []*corev1.Event {
			synctest.Wait()
			l, err := c.Events.List(t.Context(), &metav1.ListRequest{})
			if err != nil {
				t.Fatal(err)
			}
			return l.GetItems()
		})
		cancel()
		<-done
	})
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: name, Uid: "uid-" + name}}
}

// spec: OBJ-13
func TestSeries(t *testing.T) {
	run(t, func(t *testing.T, _ *apitest.Server, r *record.Recorder, list func() []*corev1.Event) {
		for range 100 {
			r.Event(pod("a"), record.Warning, "Failed", "Testing", "it failed")
			time.Sleep(time.Second)
		}
		r.Event(pod("b"), record.Warning, "Failed", "Testing", "it failed")
		time.Sleep(time.Minute)
		got := list()
		if len(got) != 2 {
			t.Fatalf("%d events", len(got))
		}
		a := got[0]
		if a.GetSeries().GetCount() != 100 || a.GetInvolvedObject().GetUid() != "uid-a" ||
			a.GetReportingComponent() != "tester" {
			t.Errorf("got %v", a)
		}
		if a.GetCount() != 100 || a.GetSource().GetComponent() != "tester" || a.GetSource().GetHost() != "" ||
			a.GetFirstTimestamp().GetSeconds() != a.GetEventTime().GetSeconds() ||
			a.GetLastTimestamp().GetSeconds()-a.GetFirstTimestamp().GetSeconds() != 99 {
			t.Errorf("the fields of core/v1: %v", a)
		}
		if got[1].GetSeries() != nil {
			t.Errorf("a single event has a series: %v", got[1])
		}
		// After a pause the series has ended.
		time.Sleep(10 * time.Minute)
		r.Event(pod("a"), record.Warning, "Failed", "Testing", "it failed")
		if n := len(list()); n != 3 {
			t.Errorf("%d events after the pause", n)
		}
	})
}

// An event of a part of an object says so, and is another one than of its other parts. spec: OBJ-13
func TestParts(t *testing.T) {
	run(t, func(t *testing.T, _ *apitest.Server, r *record.Recorder, list func() []*corev1.Event) {
		for _, path := range []string{"spec.containers{a}", "spec.containers{b}", "", "spec.containers{a}"} {
			r.EventIn(pod("a"), path, record.Normal, "Started", "Testing", "it runs")
		}
		got := map[string]int{}
		for _, e := range list() {
			got[e.GetInvolvedObject().GetFieldPath()]++
		}
		if len(got) != 3 || got["spec.containers{a}"] != 1 || got["spec.containers{b}"] != 1 || got[""] != 1 {
			t.Errorf("events about %v", got)
		}
	})
}

// A component that writes events in the new form leaves out the fields of the old one. spec: OBJ-13
func TestNewForm(t *testing.T) {
	run(t, func(t *testing.T, s *apitest.Server, _ *record.Recorder, list func() []*corev1.Event) {
		r := record.New(record.Config{Events: s.Admin().Events, Controller: "new", NewForm: true})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		r.Event(pod("a"), record.Normal, "R", "Testing", "n")
		time.Sleep(time.Minute)
		r.Event(pod("a"), record.Normal, "R", "Testing", "n")
		e := list()[0]
		if e.GetSource().GetComponent() != "" || e.GetCount() != 0 || e.GetFirstTimestamp() != nil ||
			e.GetLastTimestamp() != nil || e.GetSeries().GetCount() != 2 || e.GetEventTime() == nil {
			t.Errorf("got %v", e)
		}
		cancel()
		<-done
	})
}

func TestLimits(t *testing.T) {
	run(t, func(t *testing.T, _ *apitest.Server, r *record.Recorder, list func() []*corev1.Event) {
		for i := range 100 {
			r.Event(pod("a"), record.Normal, "Noise", "Testing", fmt.Sprint(i))
		}
		if n := len(list()); n != 25 || r.Dropped() != 75 {
			t.Errorf("%d events, %d dropped", n, r.Dropped())
		}
		r.Event(pod("b"), record.Normal, "Noise", "Testing", strings.Repeat("x", 5000))
		got := list()
		if n := len(got[len(got)-1].GetMessage()); n != 1024 {
			t.Errorf("a note of %d bytes", n)
		}
	})
}

// Recorders of one queue report under names of their own. spec: OBJ-13
func TestInstances(t *testing.T) {
	run(t, func(t *testing.T, _ *apitest.Server, r *record.Recorder, list func() []*corev1.Event) {
		for _, instance := range []string{"one", "two", "one"} {
			r.On(instance).Event(pod("a"), record.Normal, "R", "Testing", "n")
		}
		r.Event(pod("b"), record.Normal, "R", "Testing", "n")
		got := map[string]int{}
		for _, e := range list() {
			got[e.GetReportingInstance()]++
			if e.GetReportingComponent() != "tester" {
				t.Errorf("reported by %s", e.GetReportingComponent())
			}
			if i := e.GetReportingInstance(); i != "tester" && e.GetSource().GetHost() != i {
				t.Errorf("an event of node %s comes from %v", i, e.GetSource())
			}
		}
		if len(got) != 3 || got["one"] != 1 || got["two"] != 1 || got["tester"] != 1 {
			t.Errorf("reported by %v", got)
		}
	})
	var none *record.Recorder
	none.On("x").Event(pod("a"), record.Normal, "R", "A", "n")
}

// Two recorders that note something about one object at the same instant both do.
func TestSameInstant(t *testing.T) {
	run(t, func(t *testing.T, s *apitest.Server, r *record.Recorder, list func() []*corev1.Event) {
		other := record.New(record.Config{Events: s.Admin().Events, Controller: "other"})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- other.Run(ctx) }()
		for i := range 5 {
			r.Event(pod("a"), record.Normal, "One", "Testing", fmt.Sprint(i))
			other.Event(pod("a"), record.Normal, "Other", "Testing", fmt.Sprint(i))
		}
		if n := len(list()); n != 10 || r.Dropped() != 0 || other.Dropped() != 0 {
			t.Errorf("%d events; %d and %d dropped", n, r.Dropped(), other.Dropped())
		}
		cancel()
		<-done
	})
}

func TestServerDown(t *testing.T) {
	run(t, func(t *testing.T, s *apitest.Server, r *record.Recorder, list func() []*corev1.Event) {
		s.React(func(context.Context, string, any) error { return apierrors.New(apierrors.ServiceUnavailable, "down") })
		r.Event(pod("a"), record.Normal, "R", "Testing", "n")
		synctest.Wait()
		s.React(nil)
		if n := len(list()); n != 0 || r.Dropped() != 1 {
			t.Errorf("%d events, %d dropped", n, r.Dropped())
		}
		r.Event(pod("a"), record.Normal, "R", "Testing", "n")
		if n := len(list()); n != 1 {
			t.Errorf("%d events after recovery", n)
		}
	})
	var none *record.Recorder
	none.Event(pod("a"), record.Normal, "R", "A", "n")
}

// What does not fit the queue is dropped, and what is in it when the recorder ends is written, in its order.
func TestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apitest.Start(t)
		s.Namespaces(t, "ns")
		r := record.New(record.Config{Events: s.Admin().Events, Controller: "tester"})
		for i := range 1007 {
			r.Event(pod(fmt.Sprint(i)), record.Normal, "R", "Testing", "n")
		}
		if r.Dropped() != 7 {
			t.Errorf("%d dropped, want 7 beyond 1000", r.Dropped())
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_ = r.Run(ctx)
		l, err := s.Admin().Events.List(t.Context(), &metav1.ListRequest{Namespace: "ns"})
		if err != nil {
			t.Fatal(err)
		}
		if n := len(l.GetItems()); n != 1000 || r.Dropped() != 7 {
			t.Errorf("%d events were written and %d dropped, want 1000 and 7", n, r.Dropped())
		}
		// There is room again.
		r.Event(pod("later"), record.Normal, "R", "Testing", "n")
		if r.Dropped() != 7 {
			t.Errorf("an event was dropped though nothing is queued")
		}
	})
}
