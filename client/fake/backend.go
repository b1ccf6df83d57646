package fake

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strconv"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/codec/value"
	"monoplane.dev/object"
)

type key struct{ namespace, name string }

type change struct {
	revision int64
	event    object.Event
	old      object.Object // before the change; nil when it was created
}

// backend holds the objects of one kind. The server's mu guards everything in it.
type backend struct {
	server  *Server
	kind    *object.Kind
	objects map[key]object.Object
	log     []change
	changed chan struct{} // closed at every change
}

var _ object.Backend = (*backend)(nil)

func (b *backend) Get(_ context.Context, req *metav1.GetRequest) (object.Object, error) {
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	return b.find(req.GetNamespace(), req.GetName())
}

func (b *backend) find(namespace, name string) (object.Object, error) {
	o, ok := b.objects[key{namespace, name}]
	if !ok {
		return nil, apierrors.NewNotFound(b.kind, name)
	}
	return o, nil
}

func (b *backend) List(_ context.Context, req *metav1.ListRequest) (object.Items, error) {
	m, err := newMatcher(req.GetNamespace(), req.GetLabelSelector(), req.GetFieldSelector())
	if err != nil {
		return object.Items{}, err
	}
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	return object.Items{Meta: &metav1.ListMeta{ResourceVersion: rv(b.server.revision)}, Objects: b.selected(m)}, nil
}

func (b *backend) selected(m matcher) []object.Object {
	var out []object.Object
	for _, o := range b.objects {
		if m.matches(o) {
			out = append(out, o)
		}
	}
	sort.Slice(out, func(i, j int) bool {
		x, y := out[i].GetMetadata(), out[j].GetMetadata()
		if x.GetNamespace() != y.GetNamespace() {
			return x.GetNamespace() < y.GetNamespace()
		}
		return x.GetName() < y.GetName()
	})
	return out
}

func (b *backend) Create(_ context.Context, namespace string, o object.Object, _ object.WriteOptions) (object.Object, error) {
	s := b.server
	s.mu.Lock()
	defer s.mu.Unlock()
	o = object.Clone(o)
	m := o.GetMetadata()
	if m == nil {
		m = &metav1.ObjectMeta{}
		o.SetMetadata(m)
	}
	if b.kind.Namespaced && m.GetNamespace() == "" {
		m.Namespace = namespace
	}
	if m.GetName() == "" && m.GetGenerateName() != "" {
		m.Name = fmt.Sprintf("%s%05d", m.GetGenerateName(), s.uids)
	}
	k := key{m.GetNamespace(), m.GetName()}
	if _, ok := b.objects[k]; ok {
		return nil, apierrors.NewAlreadyExists(b.kind, k.name)
	}
	if m.GetUid() == "" {
		m.Uid = s.uid()
	}
	m.CreationTimestamp = value.Time(now())
	m.Generation = 1
	return b.store(k, o), nil
}

// store makes o the state of k and tells watchers. The caller holds mu; o belongs to the server from now on.
func (b *backend) store(k key, o object.Object) object.Object {
	s := b.server
	old := b.objects[k]
	if old != nil {
		o.GetMetadata().ResourceVersion = old.GetMetadata().GetResourceVersion()
		if proto.Equal(old, o) {
			return old
		}
	}
	s.revision++
	o.GetMetadata().ResourceVersion = rv(s.revision)
	b.objects[k] = o
	t := object.Modified
	if old == nil {
		t = object.Added
	}
	b.publish(change{s.revision, object.Event{Type: t, Object: o}, old})
	return o
}

// remove drops k and tells watchers. The caller holds mu.
func (b *backend) remove(k key, o object.Object) object.Object {
	s := b.server
	s.revision++
	last := object.Clone(o)
	last.GetMetadata().ResourceVersion = rv(s.revision)
	delete(b.objects, k)
	b.publish(change{s.revision, object.Event{Type: object.Deleted, Object: last}, o})
	return last
}

func (b *backend) publish(c change) {
	b.log = append(b.log, c)
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *backend) Update(_ context.Context, namespace, name, subresource string, o object.Object, _ object.WriteOptions) (object.Object, error) {
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	m := o.GetMetadata()
	if namespace == "" {
		namespace = m.GetNamespace()
	}
	if name == "" {
		name = m.GetName()
	}
	return b.update(namespace, name, subresource, o)
}

func (b *backend) update(namespace, name, subresource string, o object.Object) (object.Object, error) {
	old, err := b.find(namespace, name)
	if err != nil {
		return nil, err
	}
	om, m := old.GetMetadata(), o.GetMetadata()
	if m.GetUid() != "" && m.GetUid() != om.GetUid() {
		return nil, apierrors.NewConflict(b.kind, name, "Precondition failed: UID in precondition: %s, UID in object meta: %s",
			m.GetUid(), om.GetUid())
	}
	if m.GetResourceVersion() != "" && m.GetResourceVersion() != om.GetResourceVersion() {
		return nil, apierrors.NewConflict(b.kind, name, "the object has been modified; please apply your changes to the latest version and try again")
	}
	n := merged(old, o, subresource)
	k := key{namespace, name}
	nm := n.GetMetadata()
	if !sameSpec(old, n) {
		nm.Generation++
	}
	held := len(nm.GetFinalizers()) > 0
	if ns, ok := n.(*corev1.Namespace); ok {
		held = held || len(ns.GetSpec().GetFinalizers()) > 0
	}
	if nm.GetDeletionTimestamp() != nil && !held && nm.GetDeletionGracePeriodSeconds() == 0 {
		return b.remove(k, n), nil
	}
	return b.store(k, n), nil
}

// sameSpec says whether two states of an object have the same spec, if any: the generation grows with it.
func sameSpec(a, b object.Object) bool {
	x, y := a.ProtoReflect(), b.ProtoReflect()
	f := x.Descriptor().Fields().ByName("spec")
	return f == nil || x.Get(f).Equal(y.Get(f))
}

// merged takes from o what a write to the subresource may change, and the rest from old.
func merged(old, o object.Object, subresource string) object.Object {
	n := object.Clone(old)
	take := func(names ...string) {
		to, from := n.ProtoReflect(), object.Clone(o).ProtoReflect()
		for i := range from.Descriptor().Fields().Len() {
			f := from.Descriptor().Fields().Get(i)
			if !slices.Contains(names, string(f.Name())) {
				continue
			}
			if from.Has(f) {
				to.Set(f, from.Get(f))
			} else {
				to.Clear(f)
			}
		}
	}
	switch subresource {
	case "status":
		take("status")
	case "finalize", "resize":
		take("spec")
	default:
		var all []string
		fs := o.ProtoReflect().Descriptor().Fields()
		for i := range fs.Len() {
			if name := string(fs.Get(i).Name()); name != "metadata" && name != "status" {
				all = append(all, name)
			}
		}
		take(all...)
		m := object.Clone(o).GetMetadata()
		nm := n.GetMetadata()
		nm.Labels, nm.Annotations, nm.Finalizers = m.GetLabels(), m.GetAnnotations(), m.GetFinalizers()
		nm.OwnerReferences = m.GetOwnerReferences()
	}
	return n
}

func (b *backend) DeleteCollection(ctx context.Context, req *metav1.DeleteCollectionRequest) (object.Items, error) {
	m, err := newMatcher(req.GetNamespace(), req.GetLabelSelector(), req.GetFieldSelector())
	if err != nil {
		return object.Items{}, err
	}
	b.server.mu.Lock()
	found := b.selected(m)
	b.server.mu.Unlock()
	var out object.Items
	for _, o := range found {
		om := o.GetMetadata()
		d, err := b.Delete(ctx, &metav1.DeleteRequest{
			Namespace: om.GetNamespace(), Name: om.GetName(), Options: req.GetOptions(), GracePeriodSeconds: req.GracePeriodSeconds,
		})
		if apierrors.Is(err, apierrors.NotFound) {
			continue
		}
		if err != nil {
			return object.Items{}, err
		}
		out.Objects = append(out.Objects, d)
	}
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	out.Meta = &metav1.ListMeta{ResourceVersion: rv(b.server.revision)}
	return out, nil
}

func rv(n int64) string { return strconv.FormatInt(n, 10) }

type matcher struct {
	namespace string
	label     labels.Selector
	field     fields.Selector
}

func newMatcher(namespace, label, field string) (matcher, error) {
	l, err := labels.Parse(label)
	if err != nil {
		return matcher{}, apierrors.New(apierrors.BadRequest, "%v", err)
	}
	f, err := fields.ParseSelector(field)
	if err != nil {
		return matcher{}, apierrors.New(apierrors.BadRequest, "%v", err)
	}
	return matcher{namespace, l, f}, nil
}

func (m matcher) matches(o object.Object) bool {
	meta := o.GetMetadata()
	if m.namespace != "" && meta.GetNamespace() != m.namespace || !m.label.Matches(labels.Set(meta.GetLabels())) {
		return false
	}
	set := fields.Set{"metadata.name": meta.GetName(), "metadata.namespace": meta.GetNamespace()}
	if p, ok := o.(*corev1.Pod); ok {
		set["spec.nodeName"] = p.GetSpec().GetNodeName()
		set["status.phase"] = p.GetStatus().GetPhase()
	}
	return m.field.Matches(set)
}
