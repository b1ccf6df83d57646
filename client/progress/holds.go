package progress

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"k8s.io/apimachinery/pkg/labels"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/codec/value"
	"monoplane.dev/object"
	"monoplane.dev/rules/labelselector"
)

// holds returns what holds the workload as a whole.
func (f *facts) holds() (all []string) {
	if m := f.root.GetMetadata(); m.GetDeletionTimestamp() != nil {
		all = append(all, "is being deleted"+heldBy(m.GetFinalizers()))
	}
	for _, o := range append([]object.Object{f.root}, f.owned...) {
		prefix := ""
		if o != f.root {
			prefix = nameOf(o) + ": "
		}
		for _, hold := range append(append(pauses(o), conditions(o)...), f.refused(o)...) {
			all = append(all, prefix+hold)
		}
	}
	for _, b := range f.budgets {
		selector := labelselector.OrNothing(b.GetSpec().GetSelector())
		n := 0
		for _, p := range f.pods {
			if selector.Matches(labels.Set(p.GetMetadata().GetLabels())) {
				n++
			}
		}
		if s := b.GetStatus(); n > 0 && s.GetDisruptionsAllowed() == 0 {
			all = append(all, fmt.Sprintf("%s lets none of %d pods be evicted: %d are healthy, %d have to be", nameOf(b), n,
				s.GetCurrentHealthy(), s.GetDesiredHealthy()))
		}
	}
	return all
}

// heldBy words the finalizers of something that is being deleted.
func heldBy(finalizers []string) string {
	if len(finalizers) == 0 {
		return ""
	}
	return ", held by finalizers " + strings.Join(finalizers, ", ")
}

// pauses says by which field of its spec somebody has stopped an object.
func pauses(o object.Object) (all []string) {
	spec, ok := message(o.ProtoReflect(), "spec")
	if !ok {
		return nil
	}
	for _, name := range []protoreflect.Name{"paused", "suspend"} {
		field := spec.Descriptor().Fields().ByName(name)
		if field != nil && field.Kind() == protoreflect.BoolKind && spec.Get(field).Bool() {
			all = append(all, fmt.Sprintf("spec.%s is true", name))
		}
	}
	return all
}

// bad are the endings of the types of conditions that say nothing good when they are true. Others do so when they are
// not.
var bad = []string{"Failure", "Failed", "FailureTarget", "Suspended", "Pressure"}

// conditions returns the conditions of an object that say nothing good.
func conditions(o object.Object) (all []string) {
	status, ok := message(o.ProtoReflect(), "status")
	if !ok {
		return nil
	}
	field := status.Descriptor().Fields().ByName("conditions")
	if field == nil || !field.IsList() || field.Message() == nil {
		return nil
	}
	for list, i := status.Get(field).List(), 0; i < list.Len(); i++ {
		c := list.Get(i).Message()
		kind, is := text(c, "type"), text(c, "status")
		isBad := slices.ContainsFunc(bad, func(end string) bool { return strings.HasSuffix(kind, end) })
		if isBad == (is == "True") {
			all = append(all, strings.TrimSuffix(fmt.Sprintf("condition %s is %s, %s: %s", kind, is, text(c, "reason"),
				text(c, "message")), ": "))
		}
	}
	return all
}

// refused returns the newest warning of each reason about an object, such as FailedCreate, after which nothing good
// came.
func (f *facts) refused(o object.Object) (all []string) {
	newest := map[string]*corev1.Event{}
	var good time.Time
	for _, e := range f.events[o.GetMetadata().GetUid()] {
		if e.GetType() != "Warning" {
			good = later(good, lastOf(e))
		} else if was := newest[e.GetReason()]; was == nil || lastOf(was).Before(lastOf(e)) {
			newest[e.GetReason()] = e
		}
	}
	for _, e := range newest {
		if lastOf(e).After(good) {
			all = append(all, fmt.Sprintf("event %s, %s ago: %s", e.GetReason(), ago(f.now, lastOf(e)), e.GetMessage()))
		}
	}
	slices.Sort(all)
	return all
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// lastOf returns when an event happened last.
func lastOf(e *corev1.Event) time.Time {
	last := later(value.GoTime(e.GetFirstTimestamp()), value.GoTime(e.GetLastTimestamp()))
	return later(last, later(value.GoMicroTime(e.GetEventTime()), value.GoMicroTime(e.GetSeries().GetLastObservedTime())))
}

// ago returns how long ago something was, in whole seconds.
func ago(now, then time.Time) time.Duration { return max(0, now.Sub(then)).Truncate(time.Second) }
