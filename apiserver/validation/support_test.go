package validation

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	optionsv1 "monoplane.dev/api/options/v1"
)

// things describes messages with every kind of field and every kind of support, so that the test does not
// depend on what is served today.
func things(t *testing.T) protoreflect.MessageDescriptor {
	t.Helper()
	n := int32(0)
	field := func(name string, kind descriptorpb.FieldDescriptorProto_Type, of string,
		mods ...func(*descriptorpb.FieldDescriptorProto)) *descriptorpb.FieldDescriptorProto {
		n++
		f := &descriptorpb.FieldDescriptorProto{
			Name: &name, Number: proto.Int32(n), Type: kind.Enum(),
			Label:   descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(),
			Options: &descriptorpb.FieldOptions{},
		}
		if of != "" {
			f.TypeName = proto.String(".test." + of)
		}
		for _, m := range mods {
			m(f)
		}
		return f
	}
	support := func(s optionsv1.Support) func(*descriptorpb.FieldDescriptorProto) {
		return func(f *descriptorpb.FieldDescriptorProto) { proto.SetExtension(f.Options, optionsv1.E_Support, s) }
	}
	refused, stored := support(optionsv1.Support_REFUSED), support(optionsv1.Support_STORED)
	byValue := func(f *descriptorpb.FieldDescriptorProto) { proto.SetExtension(f.Options, optionsv1.E_Always, true) }
	inlined := func(f *descriptorpb.FieldDescriptorProto) { proto.SetExtension(f.Options, optionsv1.E_Inline, true) }
	repeated := func(f *descriptorpb.FieldDescriptorProto) {
		f.Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
	}
	const (
		str  = descriptorpb.FieldDescriptorProto_TYPE_STRING
		num  = descriptorpb.FieldDescriptorProto_TYPE_INT64
		flag = descriptorpb.FieldDescriptorProto_TYPE_BOOL
		msg  = descriptorpb.FieldDescriptorProto_TYPE_MESSAGE
	)
	file := &descriptorpb.FileDescriptorProto{
		Name: proto.String("test.proto"), Package: proto.String("test"), Syntax: proto.String("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{
			{Name: proto.String("Thing"), Field: []*descriptorpb.FieldDescriptorProto{
				field("plain", str, ""), field("kept", str, "", stored), field("no", str, "", refused),
				field("count", num, "", refused),
				field("flag", flag, "", stored), field("names", str, "", repeated, refused), field("part", msg, "Part"),
				field("parts", msg, "Part", repeated), field("in", msg, "Part", inlined),
				field("value", msg, "Empty", byValue, refused),
				field("pointer", msg, "Empty", refused), field("self", msg, "Thing"), field("dull", msg, "Empty"),
			}},
			{Name: proto.String("Part"),
				Field: []*descriptorpb.FieldDescriptorProto{field("x", str, "", refused), field("y", str, "", stored),
					field("z", str, "")}},
			{Name: proto.String("Empty"), Field: []*descriptorpb.FieldDescriptorProto{field("e", str, "")}},
		},
	}
	fd, err := protodesc.NewFile(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	return fd.Messages().ByName("Thing")
}

func TestSupport(t *testing.T) {
	d := things(t)
	s := NewSupport()
	for _, c := range []struct{ in, refused, stored string }{
		{`{}`, "", ""},
		{`{"plain":"a","part":{"z":"b"},"dull":{"e":"f"}}`, "", ""},
		{`{"kept":"a"}`, "", "kept"},
		{`{"kept":"","no":"","count":"0","flag":false,"names":[]}`, "", ""},
		{`{"no":"a","count":"1","flag":true,"names":[""]}`, "no count names", "flag"},
		{`{"part":{"x":"a","y":"b"},"parts":[{},{"x":"a"},{"y":"b"}]}`, "part.x parts[1].x", "part.y parts[2].y"},
		{`{"in":{"x":"a","y":"b"}}`, "x", "y"},
		{`{"value":{}}`, "", ""},
		{`{"value":{"e":"a"}}`, "value", ""},
		{`{"pointer":{}}`, "pointer", ""},
		{`{"self":{"self":{"no":"a","kept":"b"}}}`, "self.self.no", "self.self.kept"},
	} {
		m := dynamicpb.NewMessage(d)
		if err := protojson.Unmarshal([]byte(c.in), m); err != nil {
			t.Fatal(err)
		}
		w := s.walk(m)
		var refused, stored []string
		for _, r := range w.refused.Causes() {
			if r.Type != "FieldValueForbidden" || !strings.HasPrefix(r.Message, "Forbidden: ") {
				t.Errorf("%s: %+v", c.in, r)
			}
			refused = append(refused, r.Field)
		}
		for _, text := range w.stored {
			name, rest, _ := strings.Cut(text, ": ")
			if rest != "kept but has no effect in this version" {
				t.Errorf("%s: warning %q", c.in, text)
			}
			stored = append(stored, name)
		}
		if got := strings.Join(refused, " "); got != c.refused {
			t.Errorf("%s: refused %q, want %q", c.in, got, c.refused)
		}
		if got := strings.Join(stored, " "); got != c.stored {
			t.Errorf("%s: stored %q, want %q", c.in, got, c.stored)
		}
	}
}

func TestSupportIsBounded(t *testing.T) {
	d := things(t)
	m := dynamicpb.NewMessage(d)
	list := m.Mutable(d.Fields().ByName("parts")).List()
	for range 5000 {
		e := list.AppendMutable().Message()
		e.Set(e.Descriptor().Fields().ByName("x"), protoreflect.ValueOfString("a"))
		e.Set(e.Descriptor().Fields().ByName("y"), protoreflect.ValueOfString("a"))
	}
	w := NewSupport().walk(m)
	if n := len(w.refused.Causes()); n != MaxCauses+1 {
		t.Errorf("%d causes", n)
	}
	if len(w.stored) != maxWarnings {
		t.Errorf("%d warnings", len(w.stored))
	}
}

// spec: OBJ-3
func TestSupportOfPods(t *testing.T) {
	s := NewSupport()
	pod := func(f func(*corev1.PodSpec)) *corev1.Pod {
		p := &corev1.Pod{Metadata: &metav1.ObjectMeta{Name: "p"},
			Spec: &corev1.PodSpec{Containers: []*corev1.Container{{Name: "c", Image: "host"}}}}
		f(p.Spec)
		return p
	}
	no, yes, root := false, true, int64(0)
	if refused, stored := s.Unsupported(pod(func(*corev1.PodSpec) {})); len(refused)+len(stored) > 0 {
		t.Errorf("a plain pod: refused %v, stored %v", refused, stored)
	}
	for _, c := range []struct {
		name    string
		pod     *corev1.Pod
		refused string
	}{
		{"root by number", pod(func(s *corev1.PodSpec) {
			s.SecurityContext = &corev1.PodSecurityContext{RunAsUser: &root}
			s.Containers[0].SecurityContext = &corev1.SecurityContext{RunAsUser: &root, AllowPrivilegeEscalation: &no}
		}), ""},
		{"user namespace", pod(func(s *corev1.PodSpec) { s.HostUsers = &no }), ""},
		{"a group", pod(func(s *corev1.PodSpec) { s.SchedulingGroup = &corev1.PodSchedulingGroup{} }),
			"spec.schedulingGroup"},
		{"the node's users", pod(func(s *corev1.PodSpec) { s.HostUsers = &yes }), ""},
		{"no privileges", pod(func(s *corev1.PodSpec) {
			s.Containers[0].SecurityContext = &corev1.SecurityContext{
				Privileged: &no}
		}), ""},
		{"priority 0", pod(func(s *corev1.PodSpec) { s.Priority = new(int32) }), ""},
	} {
		refused, _ := s.Unsupported(c.pod)
		var names []string
		for _, r := range refused {
			names = append(names, r.Field)
		}
		if got := strings.Join(names, " "); got != c.refused {
			t.Errorf("%s: refused %q, want %q", c.name, got, c.refused)
		}
	}
}

// Preferred node affinity counts in the scheduler's scores, so that nobody is warned about it.
// spec: OBJ-3, SCHED-5
func TestPreferredNodeAffinityIsServed(t *testing.T) {
	refused, stored := NewSupport().Unsupported(
		&corev1.Pod{Spec: &corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []*corev1.PreferredSchedulingTerm{{Weight: 1,
				Preference: &corev1.NodeSelectorTerm{
					MatchExpressions: []*corev1.NodeSelectorRequirement{{Key: "zone", Operator: "Exists"}},
				}}},
		}}}})
	if len(refused)+len(stored) > 0 {
		t.Errorf("refused %v, stored %v", refused, stored)
	}
}

// What agents mount is taken without a warning; volumes that no node can mount are warned of.
// spec: OBJ-3
func TestSupportOfVolumes(t *testing.T) {
	refused, stored := NewSupport().Unsupported(&corev1.Pod{Spec: &corev1.PodSpec{
		Volumes: []*corev1.Volume{
			{Name: "a", VolumeSource: &corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{
				ClaimName: "c"}}},
			{Name: "b", VolumeSource: &corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			{Name: "c", VolumeSource: &corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
			{Name: "d", VolumeSource: &corev1.VolumeSource{Rbd: &corev1.RBDVolumeSource{}}},
		},
		Containers: []*corev1.Container{{VolumeMounts: []*corev1.VolumeMount{{Name: "a", MountPath: "/a"}},
			VolumeDevices: []*corev1.VolumeDevice{{Name: "a"}}}},
	}})
	if len(refused) > 0 {
		t.Errorf("refused %v", refused)
	}
	want := []string{"spec.volumes[3].rbd: no node has a driver for it: pods that mount it wait, with the event " +
		"FailedMount"}
	if !slices.Equal(stored, want) {
		t.Errorf("warnings %q", stored)
	}
}

// Inter-pod affinity and anti-affinity are honored by the scheduler, with all fields of their terms.
// spec: OBJ-3, SCHED-4, SCHED-5
func TestInterPodAffinityIsServed(t *testing.T) {
	term := &corev1.PodAffinityTerm{
		LabelSelector: &metav1.LabelSelector{}, Namespaces: []string{"a"}, TopologyKey: "zone",
		NamespaceSelector: &metav1.LabelSelector{},
		MatchLabelKeys:    []string{"x"}, MismatchLabelKeys: []string{"y"},
	}
	required, preferred := []*corev1.PodAffinityTerm{term},
		[]*corev1.WeightedPodAffinityTerm{{Weight: 1, PodAffinityTerm: term}}
	refused, stored := NewSupport().Unsupported(&corev1.Pod{Spec: &corev1.PodSpec{Affinity: &corev1.Affinity{
		PodAffinity: &corev1.PodAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution:  required,
			PreferredDuringSchedulingIgnoredDuringExecution: preferred,
		},
		PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution:  required,
			PreferredDuringSchedulingIgnoredDuringExecution: preferred,
		},
	}}})
	if len(refused)+len(stored) > 0 {
		t.Errorf("refused %v, stored %v", refused, stored)
	}
}

// The quick look finds whatever the walk finds: each field of a pod is set alone, to something and to its zero value.
func TestQuickLookMissesNothing(t *testing.T) {
	s, fields, reported := NewSupport(), 0, 0
	check := func(fd protoreflect.FieldDescriptor, p *corev1.Pod) {
		w := s.walk(p)
		refused, stored := s.Unsupported(p)
		if !slices.Equal(refused, w.refused.Causes()) || !slices.Equal(stored, w.stored) {
			t.Errorf("%s: refused %v, want %v; stored %v, want %v", fd.FullName(), refused, w.refused.Causes(), stored,
				w.stored)
		}
		reported += len(refused) + len(stored)
	}
	var visit func(d protoreflect.MessageDescriptor, depth int, build func() (*corev1.Pod, protoreflect.Message))
	visit = func(d protoreflect.MessageDescriptor, depth int, build func() (*corev1.Pod, protoreflect.Message)) {
		for i := range d.Fields().Len() {
			fd := d.Fields().Get(i)
			fields++
			if fd.Message() == nil && !fd.IsList() {
				p, m := build()
				m.Set(fd, fd.Default())
				check(fd, p)
			}
			p, m := build()
			m.Set(fd, something(m, fd))
			check(fd, p)
			if fd.Message() == nil || fd.IsMap() || depth > 7 {
				continue
			}
			visit(fd.Message(), depth+1, func() (*corev1.Pod, protoreflect.Message) {
				p, m := build()
				if fd.IsList() {
					return p, m.Mutable(fd).List().AppendMutable().Message()
				}
				return p, m.Mutable(fd).Message()
			})
		}
	}
	visit((&corev1.PodSpec{}).ProtoReflect().Descriptor(), 0, func() (*corev1.Pod, protoreflect.Message) {
		p := &corev1.Pod{Spec: &corev1.PodSpec{}}
		return p, p.Spec.ProtoReflect()
	})
	if fields < 500 || reported < 100 {
		t.Errorf("%d fields were looked at, %d faults and warnings found", fields, reported)
	}
}

// something is a value of a field that is more than nothing.
func something(m protoreflect.Message, fd protoreflect.FieldDescriptor) protoreflect.Value {
	v := m.NewField(fd)
	switch {
	case fd.IsMap():
		e := v.Map().NewValue()
		if fd.MapValue().Kind() == protoreflect.StringKind {
			e = protoreflect.ValueOfString("a")
		}
		v.Map().Set(protoreflect.ValueOfString("a").MapKey(), e)
	case fd.IsList():
		v.List().Append(v.List().NewElement())
	case fd.Message() != nil:
	case fd.Kind() == protoreflect.StringKind:
		return protoreflect.ValueOfString("a")
	case fd.Kind() == protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte("a"))
	case fd.Kind() == protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case fd.Kind() == protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(1)
	case fd.Kind() == protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(1)
	}
	return v
}

// unchecked are the fields that validation does not look into. They must be refused as long as that is so.
func TestWhatIsNotValidatedIsRefused(t *testing.T) {
	volume := (&corev1.VolumeSource{}).ProtoReflect().Descriptor()
	mustRefuse(t, (&corev1.TypedObjectReference{}).ProtoReflect().Descriptor(), "namespace", nil, "")
	pod := (&corev1.PodSpec{}).ProtoReflect().Descriptor()
	mustRefuse(t, pod, "resourceClaims", nil, "")
	mustRefuse(t, pod, "schedulingGroup", nil, "")
	projection := (&corev1.VolumeProjection{}).ProtoReflect().Descriptor()
	mustRefuse(t, projection, "clusterTrustBundle", volume, "projected")
	mustRefuse(t, projection, "podCertificate", volume, "projected")
	mustRefuse(t, (&corev1.ResourceRequirements{}).ProtoReflect().Descriptor(), "claims", nil, "")
	mustRefuse(t, (&corev1.NodeSpec{}).ProtoReflect().Descriptor(), "configSource", nil, "")
}

// mustRefuse checks that a field, or the field above that leads to it, is refused.
func mustRefuse(t *testing.T, d protoreflect.MessageDescriptor, name protoreflect.Name,
	above protoreflect.MessageDescriptor, aboveName protoreflect.Name) {
	t.Helper()
	refuses := func(d protoreflect.MessageDescriptor, name protoreflect.Name) bool {
		fd := d.Fields().ByName(name)
		if fd == nil {
			t.Fatalf("%s has no field %s", d.FullName(), name)
		}
		return proto.GetExtension(fd.Options(), optionsv1.E_Support) == optionsv1.Support_REFUSED
	}
	if !refuses(d, name) && (above == nil || !refuses(above, aboveName)) {
		t.Errorf("%s.%s is served but not validated", d.FullName(), name)
	}
}

func TestSupportIsSafeForConcurrentUse(t *testing.T) {
	d := things(t)
	s := NewSupport()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				m := dynamicpb.NewMessage(d)
				m.Set(d.Fields().ByName("no"), protoreflect.ValueOfString("a"))
				if n := len(s.walk(m).refused.list); n != 1 {
					t.Errorf("%d causes", n)
				}
			}
		})
	}
	wg.Wait()
}
