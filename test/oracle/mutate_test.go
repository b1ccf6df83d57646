package oracle

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// skipped are fields that random changes leave alone, by the end of their path: those that Monoplane
// refuses as a whole (its validation does not look into them) or drops, and those that Kubernetes itself
// drops in 1.36.
var skipped = []string{
	// Refused by the support option: devices, groups, certificates.
	".ResourceClaims", ".Claims", ".SchedulingGroup", ".ClusterTrustBundle", ".PodCertificate",
	// Dropped by Kubernetes because its feature is off.
	".StopSignal",
	// Written by the server alone.
	".Status", ".ResourceVersion", ".SelfLink", ".UID", ".Generation", ".CreationTimestamp", ".DeletionTimestamp",
	".DeletionGracePeriodSeconds", ".Time", ".ManagedFields", ".FieldsV1",
}

var words = []string{
	"", "a", "A", "a-b", "-a", "a-", "a_b", "a.b", "a..b", "a/b", "/a", "a/b/c", "..", "../a", "..a", "a/../b", " a",
	"a b", "é", "0", "1", "-1", "00",
	"example.com/x", "kubernetes.io/x", "metadata.name", "metadata.labels['a']", "metadata.labels['']",
	"metadata.annotations['A.b/C']", "spec.host",
	"status.podIP", "status.phase", "spec.nodeName['x']", "limits.cpu", "requests.memory", "limits.hugepages-2Mi", "v1",
	"v2", "TCP", "SCTP", "tcp",
	"Always", "IfNotPresent", "Never", "OnFailure", "None", "Default", "ClusterFirst", "File", "HTTP", "HTTPS", "In",
	"NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Equal",
	"NoSchedule", "NoExecute", "PreferNoSchedule", "DoNotSchedule", "ScheduleAnyway", "Honor", "Ignore", "Localhost",
	"RuntimeDefault", "Unconfined", "linux", "windows", `D\u`, `a.b\u v`, `.\.`, `D\`, `a\b\c`,
	"Bidirectional", "HostToContainer", "Enabled", "Disabled", "IfPossible", "Memory", "Directory", "empty", "host",
	"config", "claim", "app", "second", "init", "side", "http",
	"10.0.0.1", "::1", "1.2.3", "010.0.0.1", "::ffff:1.2.3.4", "net.core.somaxconn", "kernel.shmmax", "net/core/x",
	"latest", "a:latest", "a:1", "a@sha256:x", "r.io:5000/a",
	"Restart", "RestartAllContainers", "NotRequired", "RestartContainer", "cpu", "memory", "PreemptLowerPriority",
	"Merge", "Strict", "Recursive", "MountOption", "Unmasked",
	strings.Repeat("a", 63), strings.Repeat("a", 64), strings.Repeat("a.", 126) + "a", strings.Repeat("a", 254),
}

var numbers = []int64{-1, 0, 1, 2, 5, 30, 80, 100, 101, 0o777, 0o1000, 65535, 65536, 1 << 31, -1 << 31, 1<<31 - 1, 600,
	599}

var quantities = []string{"0", "1", "-1", "100m", "1.5", "0.0001", "1Gi", "3", "2Mi", "3Mi", "4Mi", "10", "1e3", "8"}

var resourceNames = []string{
	"cpu", "memory", "ephemeral-storage", "storage", "pods", "example.com/gpu", "hugepages-2Mi", "hugepages-x",
	"hugepages-", "requests.cpu", "foo", "kubernetes.io/x", "requests.example.com/x", "bad name", "",
}

// a change is one thing that can be altered in an object.
type change struct {
	path  string
	apply func(r *rand.Rand)
}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

// changes lists everything in v that can be altered.
func changes(path string, v reflect.Value) []change {
	for _, s := range skipped {
		if strings.HasSuffix(path, s) {
			return nil
		}
	}
	one := func(what string, f func(r *rand.Rand)) change { return change{path + what, f} }
	switch x := v.Addr().Interface().(type) {
	case *resource.Quantity:
		return []change{one("", func(r *rand.Rand) { *x = resource.MustParse(pick(r, quantities)) })}
	case *intstr.IntOrString:
		return []change{one("", func(r *rand.Rand) {
			*x = intstr.FromInt32(int32(pick(r, numbers)))
			if r.IntN(2) == 0 {
				*x = intstr.FromString(pick(r, words))
			}
		})}
	case *v1.ResourceList:
		return []change{one("", func(r *rand.Rand) {
			if *x == nil {
				*x = v1.ResourceList{}
			}
			(*x)[v1.ResourceName(pick(r, resourceNames))] = resource.MustParse(pick(r, quantities))
		}), one(" nil", func(*rand.Rand) { *x = nil })}
	case *metav1.Time, *metav1.MicroTime:
		return nil
	}
	switch v.Kind() {
	case reflect.String:
		return []change{one("", func(r *rand.Rand) { v.SetString(pick(r, words)) })}
	case reflect.Int32, reflect.Int64:
		return []change{one("", func(r *rand.Rand) {
			if n := pick(r, numbers); !v.OverflowInt(n) {
				v.SetInt(n)
			}
		})}
	case reflect.Bool:
		return []change{one("", func(*rand.Rand) { v.SetBool(!v.Bool()) })}
	case reflect.Struct:
		var all []change
		for i := range v.NumField() {
			f := v.Type().Field(i)
			name := "." + f.Name
			if f.Anonymous {
				name = ""
			}
			all = append(all, changes(path+name, v.Field(i))...)
		}
		return all
	case reflect.Pointer:
		if v.IsNil() {
			return []change{one(" new", func(r *rand.Rand) {
				v.Set(reflect.New(v.Type().Elem()))
				if k := v.Elem().Kind(); k != reflect.Struct && r.IntN(3) > 0 {
					pick(r, changes(path, v.Elem())).apply(r)
				}
			})}
		}
		return append(changes(path, v.Elem()), one(" nil", func(*rand.Rand) { v.SetZero() }))
	case reflect.Slice:
		all := []change{one(" append", func(*rand.Rand) { v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem()))) })}
		if v.Len() > 0 {
			all = append(all, one(" nil", func(*rand.Rand) { v.SetZero() }), one(" repeat", func(r *rand.Rand) {
				v.Set(reflect.Append(v, v.Index(r.IntN(v.Len()))))
			}), one(" drop", func(r *rand.Rand) { v.Set(v.Slice(0, r.IntN(v.Len()))) }))
		}
		for i := range v.Len() {
			all = append(all, changes(fmt.Sprintf("%s[%d]", path, i), v.Index(i))...)
		}
		return all
	case reflect.Map:
		return []change{one(" put", func(r *rand.Rand) {
			if v.IsNil() {
				v.Set(reflect.MakeMap(v.Type()))
			}
			value := reflect.New(v.Type().Elem()).Elem()
			if value.Kind() == reflect.String {
				value.SetString(pick(r, words))
			}
			key := reflect.New(v.Type().Key()).Elem()
			key.SetString(pick(r, words))
			v.SetMapIndex(key, value)
		})}
	}
	return nil
}

// alter applies n random changes to *object and says which.
func alter(r *rand.Rand, object any, n int, only func(path string) bool) []string {
	var done []string
	for range n {
		all := changes("", reflect.ValueOf(object).Elem())
		all = slices.DeleteFunc(all, func(c change) bool { return only != nil && !only(c.path) })
		if len(all) == 0 {
			break
		}
		c := pick(r, all)
		c.apply(r)
		done = append(done, c.path)
	}
	return done
}
