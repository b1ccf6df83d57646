package registry

import (
	"io"
	"slices"
	"strconv"

	"github.com/google/uuid"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/validation"
	"monoplane.dev/codec/value"
	"monoplane.dev/object"

	metav1 "monoplane.dev/api/meta/v1"
)

const (
	// nameAlphabet has no vowels and no digits that look like letters, so that no words arise.
	nameAlphabet = "bcdfghjklmnpqrstvwxz2456789"
	suffixLength = 5
	// maxGenerateName leaves room for the suffix in a label of 63 characters.
	maxGenerateName = 63 - suffixLength
	// nameAttempts is how many generated names are tried (OBJ-11).
	nameAttempts = 8
)

// generatedName appends random characters to a prefix.
func (r *Registry) generatedName(prefix string) (string, error) {
	if len(prefix) > maxGenerateName {
		prefix = prefix[:maxGenerateName]
	}
	suffix, err := randomSuffix(r.deps.Rand)
	return prefix + suffix, err
}

func randomSuffix(rand io.Reader) (string, error) {
	out := make([]byte, 0, suffixLength)
	var b [16]byte
	for len(out) < suffixLength {
		if _, err := io.ReadFull(rand, b[:]); err != nil {
			return "", err
		}
		for _, c := range b {
			// Bytes beyond the last whole multiple would make the first letters likelier.
			if n := len(nameAlphabet); int(c) < 256/n*n && len(out) < suffixLength {
				out = append(out, nameAlphabet[int(c)%n])
			}
		}
	}
	return string(out), nil
}

// identify gives a new object what only the server may give (OBJ-1).
func (r *Registry) identify(m *metav1.ObjectMeta) error {
	id, err := uuid.NewRandomFromReader(r.deps.Rand)
	if err != nil {
		return err
	}
	m.Uid = id.String()
	m.CreationTimestamp = value.Time(r.deps.Clock.Now())
	m.Generation = 0
	if r.strategy.Spec != nil {
		m.Generation = 1
	}
	m.DeletionTimestamp, m.DeletionGracePeriodSeconds = nil, nil
	m.SelfLink, m.ManagedFields = "", nil
	return nil
}

// place checks the names in an object against those of the request and fills in what one of them lacks.
// An empty name in the request means that the object's own counts.
func (r *Registry) place(m *metav1.ObjectMeta, namespace, name string) error {
	if namespace != "" && m.Namespace != "" && namespace != m.Namespace {
		return apierrors.New(apierrors.BadRequest,
			"the namespace of the provided object does not match the namespace sent on the request")
	}
	if m.Namespace == "" {
		m.Namespace = namespace
	}
	if r.kind.Namespaced && m.Namespace == "" {
		return apierrors.New(apierrors.BadRequest, "an empty namespace may not be set for a namespaced resource")
	}
	if name != "" && m.Name != "" && name != m.Name {
		return apierrors.New(apierrors.BadRequest,
			"the name of the object (%s) does not match the name on the URL (%s)", m.Name, name)
	}
	if m.Name == "" {
		m.Name = name
	}
	return nil
}

// metaOfPart returns the metadata of live with the parts that an update of a subresource takes from what was asked.
func metaOfPart(asked, live *metav1.ObjectMeta, takes Metadata) *metav1.ObjectMeta {
	m := live.Shallow()
	if asked == nil || takes == 0 {
		return m
	}
	asked = object.Clone(asked)
	if takes&Labels != 0 {
		m.Labels = asked.Labels
	}
	if takes&Annotations != 0 {
		m.Annotations = asked.Annotations
	}
	if takes&Owners != 0 {
		m.OwnerReferences = asked.OwnerReferences
	}
	if takes&Finalizers != 0 {
		m.Finalizers = asked.Finalizers
	}
	return m
}

// mergeMeta gives next, which came from a client, the metadata that clients cannot change. Fields left empty mean "as
// it is"; different ones are for validation to refuse.
func mergeMeta(next, live object.Object) {
	l, m := meta(live), meta(next)
	m.Name, m.Namespace = l.Name, l.Namespace
	m.ResourceVersion, m.Generation = l.ResourceVersion, l.Generation
	m.SelfLink, m.ManagedFields = l.SelfLink, l.ManagedFields
	if m.Uid == "" {
		m.Uid = l.Uid
	}
	// As in Kubernetes, never a reason to refuse: its protobuf clients send a time that is not set as an empty message.
	m.CreationTimestamp = l.CreationTimestamp
	if m.DeletionTimestamp == nil {
		m.DeletionTimestamp = l.DeletionTimestamp
	}
	if m.DeletionGracePeriodSeconds == nil {
		m.DeletionGracePeriodSeconds = l.DeletionGracePeriodSeconds
	}
}

// generation raises next's generation when its spec differs from live's (OBJ-5).
func (r *Registry) generation(next, live object.Object) {
	if r.strategy.Spec != nil && !validation.Equal(r.strategy.Spec(next), r.strategy.Spec(live)) {
		meta(next).Generation++
	}
}

// completed says whether an object whose deletion has begun goes with this write: nothing holds it any more
// (DEL-6).
func (r *Registry) completed(o object.Object) bool {
	m := meta(o)
	return m.DeletionTimestamp != nil && m.GetDeletionGracePeriodSeconds() == 0 && len(m.Finalizers) == 0 &&
		(r.strategy.Held == nil || !r.strategy.Held(o))
}

// revision returns the mod revision that an object was read at.
func revision(o object.Object) (int64, error) {
	return strconv.ParseInt(meta(o).ResourceVersion, 10, 64)
}

// dryRun says whether nothing is to be stored (OBJ-8). The values have been validated.
func dryRun(values []string) bool { return slices.Contains(values, "All") }
