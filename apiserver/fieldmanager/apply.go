package fieldmanager

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/merge"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	kjson "sigs.k8s.io/json"

	"monoplane.dev/apierrors"
	"monoplane.dev/object"

	metav1 "monoplane.dev/api/meta/v1"
)

const (
	// kubectl is the manager for which objects are taken over from client-side apply.
	kubectl = "kubectl"
	// lastApplied is the annotation in which client-side apply keeps what it has applied.
	lastApplied = "kubectl.kubernetes.io/last-applied-configuration"
	// maxAnnotations is how many bytes the annotations of an object may have.
	maxAnnotations = 256 << 10
	// beforeApply owns the fields of an object whose owners were not known when it was applied first.
	beforeApply = "before-first-apply"
)

// MadeKey is the gRPC header metadata key that says that an apply or update has made the object; REST answers with 201
// then.
const MadeKey = "made"

// Applied is what comes of an Apply.
type Applied struct {
	// Object is the merged object as JSON.
	Object []byte
	// Entries are those of the object from now on.
	Entries []*metav1.ManagedFieldsEntry
}

// Parse reads what is applied: one JSON object, which says that it is of the kind. Errors: BadRequest.
func Parse(k *object.Kind, doc []byte) (map[string]any, error) {
	var config map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(doc, &config); err != nil {
		return nil, apierrors.New(apierrors.BadRequest, "error decoding YAML: %v", err)
	}
	version, _ := config["apiVersion"].(string)
	kind, _ := config["kind"].(string)
	if version != k.APIVersion() || kind != k.Kind {
		if !strings.Contains(version, "/") {
			version = "/" + version // as Kubernetes writes the core group
		}
		return nil, apierrors.New(apierrors.BadRequest, "invalid object type: %s, Kind=%s", version, kind)
	}
	if metadata, _ := config["metadata"].(map[string]any); metadata["managedFields"] != nil {
		return nil, apierrors.New(apierrors.BadRequest, "metadata.managedFields must be nil")
	}
	return config, nil
}

// Apply merges config into live, whose form as JSON in the version of the write, without its entries, is doc, as is
// what comes of it: what the manager has applied before and does not any more goes, unless somebody else wants it
// too. Of a new object live is nil, and doc is an empty one. What others own and config wants otherwise is a
// conflict, unless forced. Errors: BadRequest, Conflict.
func (k *Kind) Apply(live object.Object, doc []byte, config map[string]any, w Write, force bool) (*Applied, error) {
	var before []*metav1.ManagedFieldsEntry
	if live != nil {
		if before = live.GetMetadata().GetManagedFields(); len(before) == 0 {
			first := w
			first.Manager = beforeApply
			before = k.Update(nil, live, nil, first)
		}
	}
	var current map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(doc, &current); err != nil {
		return nil, apierrors.NewInternal(err)
	}
	v := k.of(w.APIVersion)
	a := application{w: w, kind: k, typ: v.types()}
	var err error
	if a.live, err = a.typ.FromUnstructured(current, typed.AllowDuplicates); err != nil {
		return nil, apierrors.NewInternal(fmt.Errorf("the stored object does not fit the schema: %w", err))
	}
	if a.config, err = a.typ.FromUnstructured(config); err != nil {
		return nil, apierrors.New(apierrors.BadRequest, "failed to create typed patch object (%s; %s/%s, Kind=%s): %v",
			nameOf(config), v.Kind.Group, v.Kind.Version, v.Kind.Kind, err)
	}
	if err := a.decode(before); err != nil {
		return nil, apierrors.NewInternal(err)
	}
	merged, managers, err := a.apply(force)
	var conflicts merge.Conflicts
	if errors.As(err, &conflicts) {
		if conflicts = a.notTakenOver(conflicts, current); len(conflicts) > 0 {
			return nil, a.conflict(v.Kind, nameOf(config), conflicts)
		}
		merged, managers, err = a.apply(true)
	}
	if err != nil {
		return nil, apierrors.New(apierrors.BadRequest, "%v", err)
	}
	entries, err := a.encode(managers, merged != nil)
	if err != nil {
		return nil, apierrors.NewInternal(err)
	}
	if merged != nil {
		current, _ = merged.AsValue().Unstructured().(map[string]any)
	}
	if w.Manager == kubectl {
		upgrade(current, config)
	}
	out, err := json.Marshal(current)
	if err != nil {
		return nil, apierrors.NewInternal(err)
	}
	return &Applied{Object: out, Entries: entries}, nil
}

func nameOf(config map[string]any) string {
	m, _ := config["metadata"].(map[string]any)
	namespace, _ := m["namespace"].(string)
	name, _ := m["name"].(string)
	return namespace + "/" + name
}

// application is one Apply.
type application struct {
	w            Write
	kind         *Kind
	typ          typed.ParseableType
	live, config *typed.TypedValue
	// entries are those before, by the names that structured-merge-diff knows them by; sets are their fields.
	entries map[string]*metav1.ManagedFieldsEntry
	sets    fieldpath.ManagedFields
}

// self names the entry that is the manager's own.
func (a *application) self() string { return identity(applying, a.w.manager(), "", a.w.Subresource) }

// identity names an entry. That of who applies is one for all versions.
func identity(operation, manager, version, subresource string) string {
	if operation == applying {
		version = ""
	}
	return identifier(&metav1.ManagedFieldsEntry{
		Operation: operation, Manager: manager, ApiVersion: version, Subresource: subresource,
	})
}

func (a *application) decode(before []*metav1.ManagedFieldsEntry) error {
	a.entries = make(map[string]*metav1.ManagedFieldsEntry, len(before))
	a.sets = make(fieldpath.ManagedFields, len(before))
	for _, e := range before {
		name := identity(e.GetOperation(), e.GetManager(), e.GetApiVersion(), e.GetSubresource())
		s := new(fieldpath.Set)
		if err := s.FromJSON(bytes.NewReader(e.GetFieldsV1().GetRaw())); err != nil {
			return fmt.Errorf("the fields of manager %q cannot be read: %w", e.GetManager(), err)
		}
		a.entries[name] = e
		a.sets[name] = fieldpath.NewVersionedSet(s, fieldpath.APIVersion(e.GetApiVersion()),
			e.GetOperation() == applying)
	}
	return nil
}

// apply returns the merged object, nil when that is the live one, and the owners from then on.
func (a *application) apply(force bool) (*typed.TypedValue, fieldpath.ManagedFields, error) {
	version := fieldpath.APIVersion(a.w.APIVersion)
	u := merge.UpdaterBuilder{Converter: converter{a.kind}}
	if len(a.w.Skip) > 0 {
		skip := fieldpath.NewSet()
		for _, name := range a.w.Skip {
			skip.Insert(fieldpath.MakePathOrDie(name))
		}
		u.IgnoreFilter = make(map[fieldpath.APIVersion]fieldpath.Filter, len(a.kind.versions))
		for _, v := range a.kind.versions {
			u.IgnoreFilter[fieldpath.APIVersion(v.Kind.APIVersion())] = fieldpath.NewExcludeSetFilter(skip)
		}
	}
	sets := make(fieldpath.ManagedFields, len(a.sets)+1)
	for name, s := range a.sets {
		sets[name] = s
	}
	return u.BuildUpdater().Apply(a.live, a.config, version, sets, a.self(), force)
}

// encode returns the entries. That of who applies has the time of the last change that it has made.
func (a *application) encode(sets fieldpath.ManagedFields, changed bool) ([]*metav1.ManagedFieldsEntry, error) {
	out := make([]*metav1.ManagedFieldsEntry, 0, len(sets))
	for name, s := range sets {
		fields := s.Set()
		if name == a.self() {
			if fields = fields.Difference(nobodys()); fields.Empty() {
				continue
			}
		}
		raw, err := fields.ToJSON()
		if err != nil {
			return nil, fmt.Errorf("the fields of %q cannot be written: %w", name, err)
		}
		e := &metav1.ManagedFieldsEntry{
			Manager: a.w.manager(), Operation: applying, Subresource: a.w.Subresource, FieldsType: fieldsType,
		}
		if have := a.entries[name]; have != nil {
			e = have.Shallow()
		}
		e.ApiVersion, e.FieldsV1 = string(s.APIVersion()), &metav1.FieldsV1{Raw: raw}
		if name == a.self() && changed {
			e.Time = a.w.Time
		}
		out = append(out, e)
	}
	return sorted(out), nil
}

// nobodys are the paths that nobody owns, though they may be applied.
func nobodys() *fieldpath.Set {
	s := fieldpath.NewSet(
		fieldpath.MakePathOrDie("apiVersion"), fieldpath.MakePathOrDie("kind"), fieldpath.MakePathOrDie("metadata"))
	for _, name := range unowned {
		s.Insert(fieldpath.MakePathOrDie("metadata", name))
	}
	return s
}

// notTakenOver returns the conflicts that are none with client-side apply of the same fields by kubectl itself.
func (a *application) notTakenOver(conflicts merge.Conflicts, live map[string]any) merge.Conflicts {
	text := annotations(live)[lastApplied]
	if a.w.Manager != kubectl || text == nil {
		return conflicts
	}
	var last map[string]any
	doc, _ := text.(string)
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(doc), &last); err != nil {
		return conflicts
	}
	if last["apiVersion"] != a.w.APIVersion {
		return conflicts
	}
	was, err := a.typ.FromUnstructured(last)
	if err != nil {
		return conflicts
	}
	own, err := was.ToFieldSet()
	if err != nil {
		return conflicts
	}
	d, err := was.Compare(a.live)
	if err != nil {
		return conflicts
	}
	// What differs somebody else has written since.
	own = own.Difference(d.Modified).Difference(d.Added).Difference(d.Removed)
	return slices.DeleteFunc(conflicts, func(c merge.Conflict) bool { return own.Has(c.Path) })
}

func annotations(o map[string]any) map[string]any {
	m, _ := o["metadata"].(map[string]any)
	list, _ := m["annotations"].(map[string]any)
	return list
}

// upgrade brings what client-side apply has kept in the object up to date with what has been applied, so that going
// back to it works. It is left out when there is no room for it.
func upgrade(o, config map[string]any) {
	list := annotations(o)
	if text, _ := list[lastApplied].(string); text == "" {
		return
	}
	plain := shallow(config)
	if own := annotations(config); own != nil {
		metadata, _ := config["metadata"].(map[string]any)
		metadata, own = shallow(metadata), shallow(own)
		delete(own, lastApplied)
		metadata["annotations"], plain["metadata"] = own, metadata
	}
	text, err := json.Marshal(plain)
	if err != nil {
		return // made of JSON
	}
	size := len(lastApplied) + len(text) + 1
	for name, value := range list {
		if s, _ := value.(string); name != lastApplied {
			size += len(name) + len(s)
		}
	}
	if size > maxAnnotations {
		delete(list, lastApplied)
		return
	}
	list[lastApplied] = string(text) + "\n"
}

func shallow(m map[string]any) map[string]any {
	out := make(map[string]any, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}
